"""Layer-by-layer option scoring held against its controls."""
