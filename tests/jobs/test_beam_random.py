"""Random Samples in random pipelines: what recordmill.open reads is what plain Python computes."""

import io
import random
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from recordmill import open as open_data_set
from recordmill.beam import Sample, SampleObject, WriteDataset
from tests.beam_pipeline import Pipeline

pytestmark = pytest.mark.usefixtures("empty_pages")
WIDTH, HEIGHT = 40, 32
CLASSES = ("cat", "dog", "grüner Frosch", "7")
LAYOUTS = (None, None, None, "detection", "tfds", "classification")


def _image(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


IMAGES = [_image(number) for number in range(12)]


def _object(draw: random.Random, kinds: set[str]) -> SampleObject:
    left, top = draw.randrange(WIDTH - 8), draw.randrange(HEIGHT - 8)
    width, height = draw.randint(1, 8), draw.randint(1, 8)
    right, bottom = left + width, top + height
    more: dict[str, Any] = {}
    if "masks" in kinds and draw.random() < 0.8:
        more["segmentation"] = f"[[{left},{top},{right},{top},{right},{bottom},{left},{bottom}]]"
    if "fields" in kinds and draw.random() < 0.7:
        more["fields"] = {"count": draw.randrange(9), "note": draw.choice(("", "a", "ü"))}
    if draw.random() < 0.3:
        more["is_crowd"] = True
    box: Any = draw.choice((tuple, list, np.array))((left, top, width, height))
    return SampleObject(draw.choice(CLASSES), box, **more)


def _samples(draw: random.Random, kinds: set[str], splits: tuple[str, ...]) -> list[Sample]:
    samples = []
    for number, data in enumerate(IMAGES[: draw.randint(4, len(IMAGES))]):
        more: dict[str, Any] = {"split": draw.choice(splits)}
        if "objects" in kinds:
            more["objects"] = [_object(draw, kinds) for _ in range(draw.randrange(4))]
        if "class" in kinds:
            more["class_name"] = draw.choice(CLASSES)
        if "captions" in kinds:
            more["captions"] = [draw.choice(("a", "é", "two words")) for _ in range(draw.randrange(3))]
        if "tags" in kinds:
            more["tags"] = tuple(sorted({draw.choice((*CLASSES, "outdoor")) for _ in range(draw.randrange(3))}))
        if "fields" in kinds:
            more["fields"] = {"prompt": f"p{number}", "score": draw.choice((0.5, 2.0, -1.25))}
        if draw.random() < 0.5:
            more |= {"width": WIDTH, "height": HEIGHT}
        if draw.random() < 0.3:
            more["image_id"] = 1000 - number
        folder = draw.choice(("", "a/", "ä b/"))
        samples.append(Sample(f"{folder}{number}.png", data=data, **more))
    return samples


def _odd(sample: Sample, seed: int) -> int:
    """A number of the name, the same on all workers."""
    return random.Random(f"{sample.file_name} {seed}").randrange(4)


def _drop(sample: Sample, seed: int) -> list[Sample]:
    return [sample] * (_odd(sample, seed) > 0)


def _rename(sample: Sample, seed: int) -> list[Sample]:
    return [replace(sample, file_name=f"new/{sample.file_name}") if _odd(sample, seed) else sample]


def _copy(sample: Sample, seed: int) -> list[Sample]:
    copy = replace(sample, file_name=f"copy {seed}/{sample.file_name}", image_id=None)
    return [sample, copy] if _odd(sample, seed) == 0 else [sample]


def _drop_objects(sample: Sample, seed: int) -> list[Sample]:
    return [replace(sample, objects=sample.objects[_odd(sample, seed) % 2 :])]


def _damage_image(sample: Sample, seed: int) -> list[Sample]:
    faults: list[dict[str, Any]] = [{"data": b"no image"}, {"width": 3, "height": 3}, {"data": b""}, {"width": "x"}]
    return [replace(sample, **faults[_odd(sample, seed)]) if _odd(sample, seed + 1) == 0 else sample]


def _damage_object(sample: Sample, seed: int) -> list[Sample]:
    """Replace the first object by a faulty one."""
    if not sample.objects or _odd(sample, seed) < 2:
        return [sample]
    first, *rest = sample.objects
    faults: list[dict[str, Any]] = [
        {"box": (1, 2, 3)},
        {"box": (1, 2, -3, 4)},
        {"box": (900, 900, 3, 4)},
        {"id": 2**80},
    ]
    return [replace(sample, objects=[replace(first, **faults[_odd(sample, seed + 1)]), *rest])]


def _damage_caption(sample: Sample, seed: int) -> list[Sample]:
    return [replace(sample, captions=[*sample.captions, 7]) if _odd(sample, seed) == 0 else sample]


STEPS = (_drop, _rename, _copy, _drop_objects, _damage_image, _damage_object, _damage_caption)


def _is_image(sample: Sample) -> bool:
    return sample.width in (None, WIDTH) and sample.data in IMAGES


def _is_object(item: SampleObject) -> bool:
    return len(item.box) == 4 and item.box[2] > 0 and item.box[0] < WIDTH and item.id is None


def _is_image_class(samples: list[Sample], layout: str | None) -> bool:
    """True if the layout is `classification`. Faulty images and annotations do not decide it."""
    usable = [one for one in samples if one.width != "x" and one.data]
    has_others = any(
        [item for item in one.objects if len(item.box) == 4 and item.id is None]
        or [text for text in one.captions if text != 7]
        or one.tags
        for one in usable
    )
    has_class = any(one.class_name is not None for one in usable)
    return layout == "classification" or (layout is None and has_class and not has_others)


def _expected(sample: Sample, is_image_class: bool, kinds: set[str]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if "fields" in kinds:
        record |= sample.fields
    if is_image_class:
        return record | {"class": sample.class_name}
    objects = [item for item in sample.objects if _is_object(item)]
    record["objects"] = [
        (item.category, *map(float, item.box), item.is_crowd)
        + ((bool(item.segmentation),) if "masks" in kinds else ())
        + ((item.fields.get("count", -1), item.fields.get("note", "")) if "fields" in kinds else ())
        for item in objects
    ]
    if "captions" in kinds:
        record["captions"] = [text for text in sample.captions if text != 7]
    if "tags" in kinds:
        record["tags"] = [*sample.tags]
    return record


def _read(record: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """A record in the form of `_expected`."""
    plain: dict[str, Any] = {}
    if "score" in record:
        plain |= {"prompt": record["prompt"].decode(), "score": float(record["score"])}
    if "label" in record:
        return plain | {"class": names[int(record["label"])]}
    columns: list[Any] = [[names[label] for label in record["labels"]]]
    ymin, xmin, ymax, xmax = (record["boxes"] * np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])).T.round(3)
    columns += [xmin, ymin, (xmax - xmin).round(3), (ymax - ymin).round(3), record["is_crowd"].astype(bool)]
    if "masks" in record:
        columns.append([bool(mask.any()) for mask in record["masks"]])
    if "score" in record:
        number = len(record["labels"])
        columns += [record.get("count", [-1] * number), [text.decode() for text in record.get("note", [b""] * number)]]
    plain["objects"] = list(zip(*(list(column) for column in columns), strict=True))
    if "captions" in record:
        plain["captions"] = [text.decode() for text in record["captions"]]
    if "tags" in record:
        plain["tags"] = [text.decode() for text in record["tags"]]
    return plain


class _Program(msgspec.Struct):
    """A pipeline: Samples, steps with their seeds, and options of WriteDataset. `changed` are the Samples after the
    steps."""

    samples: list[Sample]
    steps: list[tuple[Any, int]]
    options: dict[str, Any]
    splits: tuple[str, ...]
    stored: set[str]
    changed: list[Sample]


def _program(draw: random.Random) -> _Program:
    layout = draw.choice(LAYOUTS)
    kinds = {"class"} if layout == "classification" else set()
    kinds |= {kind for kind in ("class", "objects", "captions", "tags", "fields") if draw.random() < 0.5}
    options: dict[str, Any] = {"layout": layout} if layout else {}
    if layout == "detection" and "objects" in kinds and draw.random() < 0.7:
        kinds, options = {*kinds, "masks"}, {**options, "masks": "rle"}
    if layout in ("detection", "tfds") and "captions" in kinds:
        options["captions"] = True
    splits = draw.choice((("train",), ("train", "val")))
    samples = _samples(draw, kinds, splits)
    steps = [(draw.choice(STEPS), draw.randrange(99)) for _ in range(draw.randrange(5))]
    changed = samples
    for step, seed in steps:
        changed = [after for before in changed for after in step(before, seed)]
    unstored = {"captions"} - options.keys() | ({"tags"} if layout == "tfds" else set())
    options["split"] = dict.fromkeys(splits, 1 / len(splits))
    return _Program(samples, steps, options, splits, kinds - unstored, changed)


@pytest.mark.parametrize("seed", range(10))
def test_records_are_those_of_plain_python(seed, tmp_path):
    draw = random.Random(seed)
    program = _program(draw)
    while {one.split for one in program.changed if _is_image(one)} != {*program.splits}:
        program = _program(draw)
    with Pipeline() as p:
        samples = p | beam.Create(program.samples) | beam.Reshuffle()
        for place, (step, number) in enumerate(program.steps):
            samples = samples | f"Step{place}" >> beam.FlatMap(step, number).with_output_types(Sample)
            samples = samples | f"Shuffle{place}" >> beam.Reshuffle()
        samples | WriteDataset(tmp_path / "out", max_rejects=1, **program.options)

    data = open_data_set(tmp_path / "out")
    layout = program.options.get("layout")
    is_image_class = _is_image_class(program.changed, layout)
    assert data.manifest.layout == ("classification" if is_image_class else layout or "detection")
    names = [category.name for category in data.manifest.categories]
    for split in program.splits:
        given = [one for one in program.changed if one.split == split]
        written = {one.file_name: _expected(one, is_image_class, program.stored) for one in given if _is_image(one)}
        assert {record["file_name"].decode(): _read(record, names) for record in data[split]} == written
        counts = data.manifest.splits[split]
        assert counts.images.rows == counts.images.accounted == len(given)
        assert counts.annotations.rows == counts.annotations.accounted
        assert sum(counts.images.rejected.values()) == len(given) - len(written)
