"""Metadata of a data set: manifests, recipes, file names, TFDS's metadata; results of verify."""
