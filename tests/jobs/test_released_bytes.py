"""Shards and indexes keep their bytes from release to release. No job here has Pillow encode an image."""

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
    f"{COCO} --keypoints points.json --masks rle --num-shards 2": "e2060196affa89d68c06db4e1f76fe2c",
    f"{COCO} --layout keras --gzip --examples-per-shard 5": "178b494067ab5208af94be454f24164a",
    "folder --images images --split train=0.5,val=0.5 --stratify --seed 3": "758cf132efa08d125c9ae994d545cf1f",
    "table --rows rows.csv --label class --num-shards 2": "7d4ffb5f62d0e21d9f53caa6e0c96f1f",
    "yolo --data . --layout tfds": "05b07857e536ef68710c978747ab8109",
}


@pytest.mark.parametrize("job", SHA256)
def test_released_bytes(job, recordmill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"{'cat' if number % 3 else 'dög'}/{number}" for number in range(12)]
    for number, name in enumerate(names):
        label = f"{number % 2} 0.5 0.5 0.{number + 1} 0.125"
        for path, data in (f"images/{name}.png", base64.b64decode(GREY)), (f"labels/{name}.txt", label.encode()):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
    objects = []
    for id_ in range(80):
        x, bottom = id_ % 37, 10.5 + id_ % 7  # some boxes cross the edge
        polygons, runs = [[x, 1.5, x + 9.25, 1.5, x + 9.25, bottom, x, bottom - 1]], [id_, 30, 1170 - id_]
        mask = polygons if id_ % 9 else {"counts": runs, "size": [30, 40]}
        of_object = id_, id_ * id_ % 12, (x, 1.5, 9.25, bottom - 1.5), 1 + id_ % 2 * 2
        objects.append(annotation(*of_object, segmentation=mask, iscrowd=int(id_ % 9 == 0), area=id_ / 7))
    points = [row | {"keypoints": [3, 4.5, 2, 0, 0, 0]} for row in objects[::4]]
    images = [image_row(number, f"{name}.png") for number, name in enumerate(names)]
    write_coco(tmp_path, images, points, [CATEGORIES[0] | SKELETON]).rename("points.json")
    write_coco(tmp_path, images, objects, CATEGORIES)
    Path("data.yaml").write_text(json.dumps({"train": "images", "names": ["cat", "dog"]}))
    rows = (f'{number},{number / 7},"say ""{number}""",c{number % 3}\n' for number in range(40))
    Path("rows.csv").write_text("id,part,text,class\n" + "".join(rows))
    assert recordmill(*job.split(), "--output", "out").code == 0
    digest = hashlib.sha256()
    for path in sorted([*Path("out").glob("*.tfrec*"), *Path("out").glob(".index/*")]):
        data = path.read_bytes()
        digest.update(path.name.encode() + (gzip.decompress(data) if path.suffix == ".gz" else data))
    assert digest.hexdigest()[:32] == SHA256[job]
