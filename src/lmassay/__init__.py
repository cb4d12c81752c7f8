"""lmassay: does what you read inside a language model survive its controls?"""

__version__ = "0.1.0"
