"""Run in .venv-model-garden: Model Garden's own decoder over shards, its output to a folder.

    python decode_with_model_garden.py OUTPUT SHARD ...

Each record becomes OUTPUT/<number>.npz, numbered in the order of the records. Of the image the SHA-256 of its pixels is
kept; of the masks the values they have, and one bit a pixel.
"""

import hashlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main(output: str, shards: list[str]) -> None:
    import numpy as np
    import tensorflow as tf
    from official.vision.dataloaders.tf_example_decoder import TfExampleDecoder

    decoder = TfExampleDecoder(include_mask=True)
    for number, decoded in enumerate(tf.data.TFRecordDataset(shards).map(decoder.decode).as_numpy_iterator()):
        image = decoded.pop("image")
        masks = decoded.pop("groundtruth_instance_masks")
        del decoded["groundtruth_instance_masks_png"]
        np.savez(
            os.path.join(output, f"{number:06}.npz"),
            image_shape=image.shape,
            image_sha256=hashlib.sha256(image.tobytes()).hexdigest(),
            mask_shape=masks.shape,
            mask_values=np.unique(masks),
            mask_bits=np.packbits(masks != 0, axis=None),
            **decoded,
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
