"""Draw a small sample data set."""
