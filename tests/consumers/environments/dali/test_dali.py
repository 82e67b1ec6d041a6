"""DALI's readers.TFRecord reads every record on a CPU, by our index."""

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import tfrecord as tfrec

from tests.consumers.coco_truth import assert_detection

ONE = {"image/encoded": "", "image/filename": "", "image/source_id": "", "image/height": 0, "image/width": 0}
"""Features of one value, with what stands where there is none."""
MANY = {f"image/object/bbox/{edge}": 0.0 for edge in ("xmax", "xmin", "ymax", "ymin")} | {
    "image/object/area": 0.0,
    "image/object/class/index": -1,
    "image/object/class/label": -1,
    "image/object/id": -1,
    "image/object/is_crowd": -1,
}
TYPES = {str: tfrec.string, int: tfrec.int64, float: tfrec.float32}


@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def read(shards: list[str], indices: list[str]):
    features = {name: tfrec.FixedLenFeature((), TYPES[type(empty)], empty) for name, empty in ONE.items()}
    features |= {name: tfrec.VarLenFeature(TYPES[type(empty)], empty) for name, empty in MANY.items()}
    values = fn.readers.tfrecord(path=shards, index_path=indices, features=features, random_shuffle=False)
    pixels = fn.decoders.image(values["image/encoded"], device="cpu", output_type=types.RGB)
    return (*(values[name] for name in (*ONE, *MANY)), pixels)


def test_every_record(truth, tmp_path, recordmill):
    assert recordmill("convert", *truth.flags, "--output", tmp_path, "--num-shards", 2).code == 0
    shards = sorted(tmp_path.glob("*.tfrecord-*"))
    pipeline = read([str(shard) for shard in shards], [str(tmp_path / ".index" / f"{s.name}.idx") for s in shards])
    pipeline.build()
    seen = []
    for _ in truth.image_ids:
        *values, pixels = (np.asarray(output.as_cpu().at(0)) for output in pipeline.run())
        record = dict(zip((*ONE, *MANY), values, strict=True))
        texts = {name: record[name].tobytes() for name, empty in ONE.items() if empty == ""}
        lists = {name: record[name] for name in MANY}
        seen.append(assert_detection(record | texts | lists, truth))
        assert pixels.shape == (*(int(record[f"image/{side}"].item()) for side in ("height", "width")), 3)
    assert sorted(seen) == sorted(truth.image_ids)
