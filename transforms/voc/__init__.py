"""Data sets of Pascal VOC: one XML file per image."""
