"""Steps that shape the images of a job: classes, sets, tiles, numbers."""
