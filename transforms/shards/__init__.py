"""Plan, write and resume shards."""
