"""Files: run folders, bundled models and what is kept between runs."""
