"""Read COCO annotation files."""
