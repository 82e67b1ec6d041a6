"""How many copies are found, and what finding them costs.

    python benchmarks/duplicates.py [--images DIR] [--images 1000000] [--folder DIR]

Of each different image below DIR a copy is made of each kind that people make, and hashed: the table gives the share
of copies that are near their image, and the pairs of different images that are near each other (look at those: they
may be copies that somebody made before). Without DIR images are drawn. Then as many random fingerprints as --images,
of which one in a thousand has an exact and a near copy, are compared, in one process: seconds of processor, peak MB.
"""

import hashlib
import io
import resource
import time
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from arguments import read_arguments
from PIL import Image

from recordmill.schemas.problems import FINGERPRINT, FINGERPRINT_VERSION, NO_HASH, Fingerprints
from recordmill.transforms.blocks.image_facts import RecordPlaces
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.measure_pixels import measure_file
from recordmill.transforms.images.open_image import image_kind, open_image
from recordmill.transforms.insight.find_duplicates import NEAR_BITS, bits_set, find_duplicates, near_groups
from recordmill.transforms.insight.fingerprint_images import fingerprint_images
from recordmill.transforms.sample.write_sample import write_sample

_SHARD = 1500


def pictures(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Different JPEGs and PNGs below a folder."""
    seen: set[bytes] = set()
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")):
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if image_kind(data) and digest not in seen:
            seen.add(digest)
            yield str(path.relative_to(folder)), data


def copies(picture: Image.Image) -> dict[str, bytes]:
    width, height = picture.size
    found = {"quality 60": encoded(picture, 60)}
    for scale in (0.5, 0.75, 1.5, 2.0):
        size = max(1, round(width * scale)), max(1, round(height * scale))
        found[f"{scale:g} times the size"] = encoded(picture.resize(size, Image.Resampling.BICUBIC), 85)
    for part in (0.01, 0.02, 0.05):
        x, y = int(width * part), int(height * part)
        found[f"{part:.0%} cut off at each edge"] = encoded(picture.crop((x, y, width - x, height - y)), 85)
    return found


def encoded(picture: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def fingerprint(data: bytes) -> np.void:
    """Fingerprint of one image."""
    kind = image_kind(data)
    with open_image(data, kind) as picture:
        size = picture.size
    values = {"image.file_name": b"", "image.width": size[0], "image.height": size[1], "image.encoded": data}
    facts = RecordView(values).facts(measure_file(data, kind))
    return fingerprint_images(facts, RecordPlaces(*np.zeros((4, 1), np.int64)))[0]


def are_near(one: np.ndarray, other: np.ndarray) -> bool:
    both = np.stack([one, other])
    return bool((near_groups(both["hash"], both["form"]) == 0).all())


def measure_recall(folder: Path) -> None:
    names: list[str] = []
    found: list[np.void] = []
    near: Counter[str] = Counter()
    for name, data in pictures(folder):
        try:
            picture = Image.open(io.BytesIO(data)).convert("RGB")
            own = fingerprint(data)
        except (OSError, SyntaxError, ValueError):  # cut files, which a job rejects
            continue
        if own["hash"] != NO_HASH:
            names.append(name)
            found.append(own)
            near.update({kind: are_near(own, fingerprint(copy)) for kind, copy in copies(picture).items()})
    print(f"{len(names):,} different images with content; of copies are near:")
    for kind, number in near.items():
        print(f"  {kind}: {number / len(names):.4f}")
    hashes = np.array([each["hash"] for each in found], np.uint64)
    both = combinations(range(len(names)), 2)
    close = [(one, other) for one, other in both if bits_set(hashes[one] ^ hashes[other]) <= NEAR_BITS]
    pairs = [(one, other) for one, other in close if are_near(found[one], found[other])]
    print(f"  {len(pairs)} pairs of different images are near ({len(close)} by their hashes alone)")
    for one, other in pairs:
        print(f"    {names[one]} {names[other]}")


def drawn_fingerprints(number: int) -> dict[str, list[Fingerprints]]:
    of = np.random.default_rng(0)
    rows = np.zeros(number, FINGERPRINT)
    for name in ("sha256", "hash"):
        rows[name] = of.integers(0, 1 << 64, rows[name].shape, dtype=np.uint64)
    planted = number // 1000
    rows["sha256"][:planted] = rows["sha256"][-planted:]
    rows["hash"][planted : 2 * planted] = rows["hash"][-planted:] ^ np.uint64(0b1010101)
    order = of.permutation(number)
    found: dict[str, list[Fingerprints]] = {"train": [], "val": []}
    for begin in range(0, number, _SHARD):
        part = rows[order[begin : begin + _SHARD]]
        names = [f"images/{begin + index:012d}.jpg" for index in range(len(part))]
        shard = Fingerprints(
            f"{begin:09d}", msgspec.Raw(msgspec.json.encode(names)), part.tobytes(), FINGERPRINT_VERSION
        )
        found["val" if begin % 7 == 0 else "train"].append(shard)
    return found


def measure_finding(number: int) -> None:
    fingerprints = drawn_fingerprints(number)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    start = time.process_time()
    found = find_duplicates(fingerprints, has_classes=False)
    seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"{number:,} images: {seconds:.1f} s, {len(found.groups):,} groups ({number // 1000:,} were planted), "
        f"peak {peak:.0f} MB, {before:.0f} MB with the fingerprints alone"
    )


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=1_000_000, pictures="")
    if arguments.images:
        measure_finding(arguments.images)
    source = Path(arguments.pictures) if arguments.pictures else folder / "drawn"
    if not arguments.pictures:
        write_sample(str(source), 240, 0)
    measure_recall(source)


if __name__ == "__main__":
    main()
