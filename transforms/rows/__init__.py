"""Rows of CSV, JSON Lines and Parquet files as batches of columns."""
