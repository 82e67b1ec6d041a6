"""Shards: planned, written, resumed."""
