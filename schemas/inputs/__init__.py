"""What a job is given: options, rows of annotations and tables, images, classes, texts, splits."""
