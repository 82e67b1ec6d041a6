"""VGG Image Annotator (VIA), versions 1 and 2: a JSON file of many images."""
