"""Beam transforms, one a file, each a thin shell over the pure function of the same name."""
