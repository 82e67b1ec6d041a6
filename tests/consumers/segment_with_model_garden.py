"""Run in .venv-model-garden: Model Garden's own segmentation decoder and parser over shards, their output to a file.

    python segment_with_model_garden.py OUTPUT SIDE SHARD ...

OUTPUT becomes a .npz of `masks`, float32 [N, SIDE, SIDE], and `valid`, bool [N, SIDE, SIDE], in the order of the
records. Masks have their stored size, and are padded.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main(output: str, side: int, shards: list[str]) -> None:
    import numpy as np
    import tensorflow as tf
    from official.vision.dataloaders.segmentation_input import Decoder, Parser

    parser = Parser(output_size=[side, side], resize_eval_groundtruth=False, groundtruth_padded_size=[side, side])
    parse = parser.parse_fn(is_training=False)
    parsed = list(tf.data.TFRecordDataset(shards).map(Decoder().decode).map(parse).as_numpy_iterator())
    labels = [labels for _, labels in parsed]
    np.savez(
        output,
        masks=[label["masks"][..., 0] for label in labels],
        valid=[label["valid_masks"][..., 0] for label in labels],
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
