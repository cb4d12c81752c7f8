"""Pure functions on arrays. `*_score` is higher-better."""
