"""Sparse autoencoders of the residual stream: read from files, used, checked, and a small one trained."""
