"""CVAT's XML 1.1: a file that names many images, or has the tracks of a video."""
