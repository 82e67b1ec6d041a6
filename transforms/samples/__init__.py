"""Samples become Blocks, and Blocks Samples."""
