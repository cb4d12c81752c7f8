"""The nine tasks, one file each, and what other packages register."""
