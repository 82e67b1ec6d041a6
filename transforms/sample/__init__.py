"""A small data set, drawn."""
