"""Steps on Blocks: packed, ordered, converted from and to structs."""
