"""Convert records back to image files and COCO's JSON."""
