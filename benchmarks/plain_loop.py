"""The same records without Beam: a loop that reads, frames, checksums and writes. What a job cannot easily beat.

    python benchmarks/plain_loop.py DATA OUTPUT SHARDS [LAYOUT]

It plans like the job does (so that its shards can be compared with the job's), takes the JSON's word for sizes, and
checks nothing.
"""

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource
from recordmill.schemas.inputs.images import ImageRef, ImageTask, Picture
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS, shard_names
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.records.tfrecord import frame
from tests.oracles.encode_examples import ExampleEncoder
from tests.oracles.task_order import image_order
from tests.transforms.coco.whole_files import read_whole


def main(data: Path, output: Path, shards: int, layout: str = "detection") -> None:
    output.mkdir(parents=True)
    items = list(read_whole(AnnotationSource(AnnotationKind.INSTANCES, str(data / "instances.json"))))
    labels = LabelMap(items[-1].categories)
    encoder = ExampleEncoder(labels, LAYOUTS[layout].with_parts(()), "clip")
    names = shard_names("coco", "train", layout)
    parts = sorted(items[:-1], key=lambda part: image_order(0, part.image_id))
    for index in range(shards):
        with open(output / names.stable(ShardKey("train", index, shards)), "wb") as file:
            for part in parts[-(-index * len(parts) // shards) : -(-(index + 1) * len(parts) // shards)]:
                row = part.rows[0]
                annotations = tuple(sorted(part.annotations, key=lambda annotation: annotation.id))
                task = ImageTask(row.id, row.file_name, row.width, row.height, ImageRef("", 0), "train", annotations)
                if not encoder.wants_image(task):
                    continue
                data_ = (data / "images" / row.file_name).read_bytes()
                picture = Picture(data_, "jpeg", row.width, row.height, hashlib.sha256(data_).hexdigest())
                for record in encoder.encode(task, picture).records:
                    before, after = frame(*record)
                    file.writelines((before, *record, after))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
