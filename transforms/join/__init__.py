"""Rows of any format, and the files that they name, become one task an image."""
