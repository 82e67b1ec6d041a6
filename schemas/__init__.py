"""Facts: Blocks, features, layouts, shards, rejects, errors.

Nothing here imports Beam, and TensorFlow is imported only inside the functions of the reading side.
"""
