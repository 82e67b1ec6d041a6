"""A builder of TensorFlow Datasets with the features of its coco/2017, in one process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("NO_GCE_CHECK", "true")  # asks the network otherwise

import numpy as np
import tensorflow_datasets as tfds
from rows import Row, rows


class Coco(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    pkg_dir_path = Path(__file__).parent  # where it looks for a README

    def __init__(self, source: str, **keywords: Any):
        self.source = source
        super().__init__(**keywords)

    def _info(self) -> tfds.core.DatasetInfo:
        objects = {
            "area": np.int64,
            "bbox": tfds.features.BBoxFeature(),
            "id": np.int64,
            "is_crowd": np.bool_,
            "label": tfds.features.ClassLabel(num_classes=91),
        }
        features = {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "image/filename": tfds.features.Text(),
            "image/id": np.int64,
            "objects": tfds.features.Sequence(objects),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": map(entry, rows(self.source))}

    def _generate_examples(self) -> Iterator[Any]:
        raise NotImplementedError  # _split_generators gives them


def entry(row: Row) -> tuple[int, dict[str, Any]]:
    objects = [
        {
            "area": int(area),
            "bbox": tfds.features.BBox(*np.clip(box, 0, 1)),
            "id": id_,
            "is_crowd": crowd,
            "label": label,
        }
        for box, label, area, crowd, id_ in zip(*row.objects, strict=True)
    ]
    return row.id, {"image": row.path, "image/filename": row.file_name, "image/id": row.id, "objects": objects}


def main(data: str, output: str, shards: str) -> None:
    tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(num_shards=int(shards))
    Coco(data, data_dir=output).download_and_prepare(download_config=config)


if __name__ == "__main__":
    main(*sys.argv[1:])
