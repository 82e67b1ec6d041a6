"""Blocks: pack, order, and convert from and to structs."""
