"""A report: run folders of either suite as one HTML file that needs neither network nor server."""
