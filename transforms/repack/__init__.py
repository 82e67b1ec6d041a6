"""Write the shards of a finished data set in another container."""
