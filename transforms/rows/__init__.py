"""Rows of CSV, JSON Lines and Parquet, in batches."""
