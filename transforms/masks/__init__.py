"""Bitmaps, COCO's run lengths, and the PNGs that hold them."""
