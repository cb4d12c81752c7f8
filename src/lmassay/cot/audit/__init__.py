"""The audit of a chain-of-thought data set: what gives its labels away, and what its splits share."""
