"""Seconds of processor time and memory of the choice of images for `--limit` and `--max-per-class`.

    python benchmarks/limit_images.py 5000000

Drawn images with the classes of COCO: 2.9 per image, 7.3 objects. 5 million take under a minute.
"""

import argparse
import resource
import time

import numpy as np

from recordmill.schemas.inputs.limits import Limits
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.shape.limit_blocks import choose_images, hash_texts, make_units

_CLASSES, _OBJECTS, _AT_ONCE = 80, 7.3, 100_000


def _draw_units(images: int):
    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, _CLASSES + 1) ** 1.2  # person has a third of COCO's objects
    for start in range(0, images, _AT_ONCE):
        number = min(_AT_ONCE, images - start)
        objects = generator.poisson(_OBJECTS, number)
        rows = np.repeat(np.arange(number), objects)
        pairs = np.stack([rows, generator.choice(_CLASSES, len(rows), p=shares / shares.sum())], axis=1)
        names = hash_texts(f"train/{start + row:012d}.jpg" for row in range(number))
        yield make_units("train", names, None, pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=int)
    images = parser.parse_args().images
    start = time.process_time()
    units = list(_draw_units(images))
    size = sum(len(part.names) + len(part.numbers) + len(part.classes) + len(part.objects) for part in units)
    print(f"{images:,} images drawn and listed in {time.process_time() - start:.0f} s, {size / images:.0f} bytes each")
    for limits in (Limits(images // 2), Limits(None, images // 50), Limits(images // 2, images // 50)):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        facts = FactsBuilder()
        remaining = choose_images(units, limits, facts)
        number, seconds = len(remaining["train"]) // 8, time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{limits}: {number:,} remain, {seconds:.1f} s, peak {peak // 1024:,} MB (before: {before // 1024:,} MB)")


if __name__ == "__main__":
    main()
