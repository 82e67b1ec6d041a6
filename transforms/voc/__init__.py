"""Data sets of Pascal VOC: an XML file an image."""
