"""What a job writes besides shards: manifests, recipes, names of files, metadata of TFDS; and what verify finds."""
