"""YOLO: a text file beside each image, and data.yaml."""
