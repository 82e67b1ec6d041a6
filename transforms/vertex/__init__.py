"""Vertex AI: JSON Lines or CSV with boxes in fractions."""
