"""Where the records of a shard are, and reading any of them."""
