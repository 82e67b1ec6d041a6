"""Open Images: CSV files of boxes and class names."""
