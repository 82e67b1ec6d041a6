"""Records become image files and COCO's JSON again."""
