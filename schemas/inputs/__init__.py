"""Inputs of a job: options, rows of annotations and tables, images, classes, texts, splits."""
