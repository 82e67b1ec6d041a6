"""Programs that read our shards, run by `make test-consumers`.

Each comparison is with an independent reading of the annotation files, by json and pycocotools.
"""
