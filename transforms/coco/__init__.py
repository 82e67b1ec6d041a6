"""COCO's JSON becomes rows."""
