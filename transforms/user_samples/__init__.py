"""Samples of users' pipelines become Blocks, and Blocks Samples."""
