"""CreateML: a JSON list of images with boxes."""
