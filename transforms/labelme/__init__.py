"""LabelMe and X-AnyLabeling: a JSON file an image."""
