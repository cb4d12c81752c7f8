"""Language models asked about chains of thought, through Inspect AI."""
