"""Those who read our shards, run on them: `make test-consumers`.

Each comparison is with an independent reading of the annotation files, by json and pycocotools.
"""
