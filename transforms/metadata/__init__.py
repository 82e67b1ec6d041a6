"""What is written beside the shards: manifest, label maps, rejects."""
