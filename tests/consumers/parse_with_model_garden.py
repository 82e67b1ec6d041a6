"""Run in .venv-model-garden: Model Garden's own classification decoder and parser over shards, their output to a file.

    python parse_with_model_garden.py OUTPUT SIDE CLASSES SHARD ...

OUTPUT becomes a .npz of `labels`, int32 [N], and `images`, float32 [N, SIDE, SIDE, 3], in the order of the records.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main(output: str, side: int, classes: int, shards: list[str]) -> None:
    import numpy as np
    import tensorflow as tf
    from official.vision.dataloaders.classification_input import Decoder, Parser

    parser = Parser(output_size=[side, side], num_classes=classes, decode_jpeg_only=True)
    parse = parser.parse_fn(is_training=False)
    parsed = list(tf.data.TFRecordDataset(shards).map(Decoder().decode).map(parse).as_numpy_iterator())
    np.savez(output, labels=[label for _, label in parsed], images=[image for image, _ in parsed])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
