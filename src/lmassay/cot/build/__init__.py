"""The nine tasks' data for any subject model: rollouts, forced prefixes and resamples, label rules, balance, splits."""
