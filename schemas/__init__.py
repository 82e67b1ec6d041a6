"""What things are: COCO rows, feature tables, records, shards, manifests, rejects, errors.

Nothing here imports Beam, and TensorFlow is imported only inside the functions of the reading side.
"""
