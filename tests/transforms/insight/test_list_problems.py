from hashlib import sha256

import msgspec
import numpy as np

from recordmill.schemas.problems import (
    FINGERPRINT_VERSION,
    Agreement,
    CopiedImage,
    DuplicateGroup,
    DuplicateImage,
    Fingerprints,
    Likeness,
    Problem,
    ProblemLine,
)
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.blocks.image_facts import FactColumns
from recordmill.transforms.insight import list_problems as module
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.find_duplicates import DuplicateFindings
from recordmill.transforms.insight.list_problems import kept_copy, list_problems, worst_problems
from tests.transforms.insight.drawn_facts import ImageFacts, fact_columns, record_places, sorted_objects, usual_places

DULL = PixelMeasures(20, 41, 0.075)  # half of the limits of dark and blurred images


def image(name: str, **values) -> ImageFacts:
    return ImageFacts(name, 100, 50, "jpeg", 1, **values)


def worst_of(*images: ImageFacts, ids: list[int]) -> list[Problem]:
    facts = FactColumns(**fact_columns(images)._asdict() | {"object_id": np.array(ids)})
    counter = ImageCounter()
    counter.add(facts, record_places(usual_places(images)), sorted_objects(facts))
    return list(worst_problems(counter.problems))


def test_problems_of_images_and_boxes():
    # Edges by column: ymin, xmin, ymax, xmax. The boxes of `b` are not in the order that they are sorted in.
    edges = ((0.5, 0.0, 0.5), (0.5, 0.0, 0.5), (1.0, 1.0, 1.0), (1.0, 0.02, 1.0))
    images = image("a", measures=DULL, boxes=((),) * 4, classes=[]), image("b", boxes=edges, classes=[3, 3, 3])
    assert worst_of(*images, ids=[7, 8, 9]) == [
        Problem("blurred", 0.5, "a"),
        Problem("dark", 0.5, "a"),
        Problem("repeated_boxes", 0.0, "b", 9),
        Problem("thin_boxes", 0.5, "b", 8),  # 2 of 4 pixels
    ]


def test_annotation_of_several_tiles_is_listed_once_with_its_worst_score():
    tiles = [Problem("thin_boxes", score, "a", 7) for score in (0.5, 0.25, 0.75)]
    others = [Problem("thin_boxes", 0.5, "b", 7), Problem("repeated_boxes", 0.0, "a", 7)]
    rows = [Problem("dark", 0.5, "a"), Problem("dark", 0.5, "a")]  # rows of a table that name one image
    assert worst_problems([*tiles, *others, *rows]) == (
        *rows,
        Problem("repeated_boxes", 0.0, "a", 7),
        Problem("thin_boxes", 0.25, "a", 7),
        Problem("thin_boxes", 0.5, "b", 7),
    )


def test_scores_of_images():
    blank, bright = PixelMeasures(9, 15, 0.0), PixelMeasures(243, 255, 0.5)
    images = image("blank", measures=blank), image("bright", measures=bright), ImageFacts("long", 70, 400, "jpeg", 1)
    images += (image("x-ray", measures=PixelMeasures(0, 4, 0.0, is_12_bit=True)),)
    assert worst_of(*images, ids=[]) == [
        Problem("blank", 0.5, "blank"),
        Problem("bright", 0.9231, "bright"),  # 12 of 13 levels
        Problem("odd_aspect", 0.5, "long"),
        Problem("twelve_bits", 0.25, "x-ray"),
    ]


def test_worst_of_each_kind_are_listed(monkeypatch):
    monkeypatch.setattr(module, "MOST_PROBLEMS", 2)
    problems = [Problem("dark", score, "a") for score in (0.9, 0.1, 0.5)] + [Problem("blank", 1.0, "a")]
    assert worst_problems(problems) == tuple(problems[index] for index in (3, 1, 2))
    rows_of_one_image = [Problem("dark", 0.1, "a"), Problem("dark", 0.1, "a")]
    assert list(worst_problems(rows_of_one_image)) == rows_of_one_image
    boxes = [Problem("thin_boxes", 0.5, "a", id_) for id_ in (9, 7)]
    assert list(worst_problems(boxes)) == boxes[::-1]


def shard(name: str, problems: tuple[Problem, ...] = ()) -> Fingerprints:
    return Fingerprints(name, b"[]", b"", FINGERPRINT_VERSION, problems)


def copy(split: str, name: str, record: int = 0) -> DuplicateImage:
    return DuplicateImage(split, name, split, record, 0, 0)


def test_evaluation_keeps_its_images():
    train, other, val, test = copy("train", "a"), copy("train", "b"), copy("val", "b"), copy("test", "b")
    assert kept_copy([train, val]) == val
    assert kept_copy([test, train, copy("val", "a")]) == test
    assert kept_copy([other, train]) == train


def test_copies_are_listed_but_for_one_that_stays(monkeypatch):
    monkeypatch.setattr(module, "MOST_PROBLEMS", 2)
    groups = [
        DuplicateGroup(Likeness.NEAR, Agreement.SAME, (copy("train", "a", 0), copy("val", "v"))),
        DuplicateGroup(Likeness.EXACT, Agreement.DIFFER, tuple(copy("train", name, 1) for name in "bcde")),
    ]
    problems = Problem("dark", 0.5, "a"), Problem("thin_boxes", 0.25, "b", 7)
    fingerprints = {"train": [shard("train", problems=problems)], "val": [shard("val")]}
    duplicates = DuplicateFindings(groups, {}, {}, 0, {("train", 0): 0b1011, ("val", 0): 0b11})
    listed = list_problems(fingerprints, duplicates, {"train": {"dark": 1, "thin_boxes": 1}, "val": {}})
    train, lines = listed["train"]
    assert msgspec.json.Decoder(ProblemLine).decode_lines(lines) == [
        ProblemLine("train", "image", "leakage", round(1 / 64, 4), "a", copy_of=CopiedImage("val", "v")),
        *(
            ProblemLine("train", "image", "exact_duplicates", 0.0, name, None, CopiedImage("train", "b"), "differ")
            for name in ("c", "d")
        ),
        ProblemLine("train", "image", "dark", 0.5, "a"),
        ProblemLine("train", "annotation", "thin_boxes", 0.25, "b", 7),
    ]
    assert train.numbers == {"leakage": 1, "exact_duplicates": 3, "dark": 1, "thin_boxes": 1}
    assert (train.sha256, listed["val"][1]) == (sha256(lines).hexdigest(), b"")
