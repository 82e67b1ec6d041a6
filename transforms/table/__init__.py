"""Rows of tables become records."""
