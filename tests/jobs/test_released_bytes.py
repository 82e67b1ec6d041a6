"""Shards and indexes keep their bytes from release to release. No job here has Pillow encode a picture."""

import base64
import gzip
import hashlib
import json
from pathlib import Path

import pytest

from tests.conftest import CATEGORIES, SKELETON, annotation, image_row, write_coco

GREY = "iVBORw0KGgoAAAANSUhEUgAAACgAAAAeCAAAAAB7tgMBAAAAGElEQVQY02OIIhIwjCocVTiqcFThYFYIAL1JpfAl/mSxAAAAAElFTkSuQmCC"
COCO = "coco --images images --instances instances.json"
SHA256 = {  # 32 digits of it, over the shards and indexes of a job
    f"{COCO} --keypoints points.json --masks rle --num-shards 2": "2bf4f99e7a6f06a00b0f1aec9922aa4d",
    f"{COCO} --layout keras --gzip --examples-per-shard 5": "1f37233300c5d3987101c39da16e7f62",
    "folder --images images --split train=0.5,val=0.5 --stratify --seed 3": "758cf132efa08d125c9ae994d545cf1f",
    "table --rows rows.csv --label class --num-shards 2": "7d4ffb5f62d0e21d9f53caa6e0c96f1f",
    "yolo --data . --layout tfds": "f41bbf65373ed542e4176bf7a66f32c8",
}


@pytest.mark.parametrize("job", SHA256)
def test_released_bytes(job, recordmill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{'cat' if number % 3 else 'dög'}/{number}" for number in range(12)]
    for number, name in enumerate(names):
        label = f"{number % 2} 0.5 0.5 0.{number + 1} 0.125".encode() if number % 4 else b""
        for path in (Path(f"images/{name}.png"), Path(f"labels/{name}.txt")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(GREY) if path.suffix == ".png" else label)
    objects = []
    for id_ in range(80):
        x, bottom = id_ % 29, 10.5 + id_ % 7
        mask = [[x, 1.5, x + 9.25, 1.5, x + 9.25, bottom, x, bottom - 1]]
        box, more = (x, 1.5, 9.25, bottom - 1.5), {"segmentation": mask, "area": id_ / 7}
        objects.append(annotation(id_, id_ * id_ % 12, box, 1 + id_ % 2 * 2, **more))
    points = [row | {"keypoints": [3, 4.5, 2, 0, 0, 0]} for row in objects[::4]]
    images = [image_row(number, f"{name}.png") for number, name in enumerate(names)]
    write_coco(tmp_path, images, points, [CATEGORIES[0] | SKELETON]).rename("points.json")
    write_coco(tmp_path, images, objects, CATEGORIES)
    Path("data.yaml").write_text(json.dumps({"train": "images", "names": ["cat", "dog"]}))
    rows = (f'{number},{number / 7},"say ""{number}""",c{number % 3}\n' for number in range(40))
    Path("rows.csv").write_text("id,part,text,class\n" + "".join(rows))
    done = recordmill(*job.split(), "--output", "out")
    assert done.code == 0, done
    digest = hashlib.sha256()
    for path in sorted([*Path("out").glob("*.tfrec*"), *Path("out").glob(".index/*")]):
        data = path.read_bytes()
        digest.update(path.name.encode() + (gzip.decompress(data) if path.suffix == ".gz" else data))
    assert digest.hexdigest()[:32] == SHA256[job]
