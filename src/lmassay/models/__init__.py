"""Language models: opened, taken apart, checked, traced and read through the lens."""
