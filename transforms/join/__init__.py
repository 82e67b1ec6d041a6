"""Join rows of any format with the files that they name, by name and by range."""
