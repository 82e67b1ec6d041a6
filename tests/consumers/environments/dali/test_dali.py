"""DALI's readers.TFRecord reads every record on a CPU, by our index."""

import json

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


@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def read_tars(shards: list[str], indices: list[str], ending: str):
    image, text = fn.readers.webdataset(
        paths=shards, index_paths=indices, ext=[ending, "json"], missing_component_behavior="skip", random_shuffle=False
    )
    return image, text


def test_every_sample_of_tars(truth, tmp_path, recordmill):
    """DALI's readers.webdataset has the members that our index names, and skips samples without an ending."""
    flags = ["--container", "webdataset", "--num-shards", 2, "--output", tmp_path]
    assert recordmill("convert", *truth.flags, *flags).code == 0
    shards = sorted(tmp_path.glob("*.tar"))
    indices = [str(tmp_path / ".index" / f"{shard.name}.idx") for shard in shards]
    seen = []
    for ending in ("jpg", "png"):
        images = {
            id_ for id_ in truth.image_ids if (truth.path(id_).read_bytes()[:4] == b"\x89PNG") == (ending == "png")
        }
        if not images:
            continue
        pipeline = read_tars([str(shard) for shard in shards], indices, ending)
        pipeline.build()
        for _ in images:
            image, text = (np.asarray(output.as_cpu().at(0)).tobytes() for output in pipeline.run())
            row = json.loads(text)
            assert image == truth.path(row["image_id"]).read_bytes()
            seen.append(row["image_id"])
    assert sorted(seen) == sorted(truth.image_ids)
