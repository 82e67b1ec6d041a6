"""Draw a COCO data set for benchmarks: N JPEGs of about 133 kB (640x480), each with 0 to 14 objects.

python benchmarks/make_coco.py FOLDER N
"""

import io
import json
import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, QUALITY = 640, 480, 88
DISTINCT = 64
"""Number of different images; a comment in each file makes all files different."""


def draw(rng: np.random.Generator, size: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    """A photograph's worth of entropy: smooth shades with noise, about 133 kB at QUALITY."""
    coarse = rng.integers(0, 255, (12, 16, 3), np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC), np.int16)
    noisy = picture + rng.normal(0, 15.5, picture.shape)
    stream = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def commented(jpeg: bytes, text: bytes) -> bytes:
    """The same image with a comment segment after the start marker."""
    return jpeg[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + jpeg[2:]


def make(
    folder: Path,
    count: int,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    distinct: int = DISTINCT,
    has_outlines: bool = True,
) -> None:
    """Write FOLDER/images and FOLDER/instances.json, images of `size` (width, height)."""
    (folder / "images").mkdir(parents=True)
    width, height = size
    pictures = [draw(np.random.default_rng(seed), size) for seed in range(distinct)]
    rng = random.Random(0)
    images, annotations = [], []
    for image_id in range(1, count + 1):
        name = f"{image_id:012}.jpg"
        (folder / "images" / name).write_bytes(commented(rng.choice(pictures), name.encode()))
        images.append({"id": image_id, "file_name": name, "width": width, "height": height})
        for _ in range(rng.randint(0, 14)):
            x, y = rng.uniform(0, width * 500 / WIDTH), rng.uniform(0, height * 380 / HEIGHT)
            w, h = rng.uniform(8, width * 130 / WIDTH), rng.uniform(8, height * 90 / HEIGHT)
            outline = [
                round(v, 2) for _ in range(24 * has_outlines) for v in (x + rng.uniform(0, w), y + rng.uniform(0, h))
            ]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": rng.randint(1, 90),
                    "bbox": [round(v, 2) for v in (x, y, w, h)],
                    "area": round(w * h, 2),
                    "iscrowd": 0,
                    "segmentation": [outline] * has_outlines,
                }
            )
    categories = [{"id": id_, "name": f"class {id_}", "supercategory": "any"} for id_ in range(1, 91)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(document))


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
