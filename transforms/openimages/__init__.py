"""Open Images: CSV files of boxes, and of the names of classes."""
