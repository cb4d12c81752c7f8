"""Known-answer models: the instrument is tested on models whose skill is known."""
