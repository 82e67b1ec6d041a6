"""Rows of any format and the files that they name, joined by name and by range."""
