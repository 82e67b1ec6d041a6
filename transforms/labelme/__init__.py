"""LabelMe and X-AnyLabeling: one JSON file per image."""
