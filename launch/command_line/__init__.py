"""Parser of the command line; options as parameters."""
