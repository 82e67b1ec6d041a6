"""Vertex AI: JSON Lines, or CSV, of images with boxes in fractions."""
