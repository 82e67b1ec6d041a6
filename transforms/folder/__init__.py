"""Classes from folders, names, and tables."""
