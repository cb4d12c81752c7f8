"""Methods that read a chain of thought: the contract, and one file per kind of method."""
