import random
from collections import Counter
from collections.abc import Set
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import (
    AnnotatedImage,
    Annotation,
    ImageLabels,
    ImageRow,
    PanopticAnnotation,
)
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, NO_FILE, ImageRef, ImageTask
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Reason
from recordmill.transforms.blocks.image_tasks import image_tasks, object_columns
from recordmill.transforms.coco.join_annotations import JoinInputs, join_annotations, match_mask
from recordmill.transforms.coco.join_images import Filters, limit_records, screen_annotations
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from tests.oracles.estimate_scalar import ScalarEstimate
from tests.oracles.join_scalar import Joined, join_scalar
from tests.transforms.coco.drawn_files import (
    CATEGORIES,
    IMAGE_IDS,
    DrawnFile,
    blocks_of,
    file_annotations,
    files,
    in_ranges,
    matched_rows,
    name_of,
)
from tests.transforms.dataset.kinds import listed

SEED = 2
ONE = Division(SplitShares((("val", Fraction(1)),)))
THIRDS = Division(SplitShares(tuple((name, Fraction(1, 3)) for name in "abc")))
GROUPS = Division(THIRDS.shares, "x/([1-4-])")
TABLE = DETECTION.with_parts((Part.MASK_PNG,))
FILTERS = [
    Filters(),
    Filters(),
    Filters(("dog", "yak")),
    Filters(crowd=False),
    Filters(("cat",), False, 1.0),
    Filters(min_area_px2=1.0),
]
MASKS = [
    None,
    {
        "masks/1.png": [ImageRef("masks/1.png", 7, "m1")],
        "masks/big.png": [ImageRef("masks/big.png", MAX_FILE_BYTES + 1)],
    },
    {"masks/1.png": [ImageRef("masks/./1.png", 7, "m1")], "masks/2.png": [ImageRef("masks/2.png", 0, NO_FILE)]},
]
FILES = [None, *[(5, "1")] * 5, (MAX_FILE_BYTES + 1, "1"), (0, NO_FILE)]
LISTED = st.fixed_dictionaries(
    {name: st.sampled_from(FILES) for name in [*map(name_of, IMAGE_IDS), "x/other.jpg", "x/shared.jpg"]}
).map(lambda files: {name: ImageRef(f"pics/{name}", *file) for name, file in files.items() if file})
Rules = tuple[Division, Filters, dict | None]
RULES = st.tuples(st.sampled_from([ONE, THIRDS, GROUPS]), st.sampled_from(FILTERS), st.sampled_from(MASKS))
ESTIMATES = RecordEstimate(TABLE), ScalarEstimate(TABLE)


def join(
    drawn: list[DrawnFile], images: dict[str, ImageRef], rules: Rules, rng: random.Random, match: str = "path"
) -> tuple[list[ImageTask], Facts]:
    """All steps from decoded rows to whole Blocks."""
    division, filters, masks = rules
    builder = FactsBuilder()
    inputs = JoinInputs(tuple(file.source for file in drawn), CATEGORIES, division, match, SEED, masks)
    rows, annotations = blocks_of(drawn, rng)
    matched = matched_rows(rows, images, match, division, builder, rng)
    found = []
    for _, group in sorted(in_ranges([*matched, *annotations], SEED, rng.randrange(4), rng).items()):
        block = join_annotations(group, inputs, builder)
        block.check()
        block = screen_annotations(block, CATEGORIES, filters, division.names, builder)
        block = limit_records(block, ESTIMATES[0], division.names, builder)
        block.check()
        found += image_tasks(block, division.names)
    return found, builder.build()


def expected_of(
    drawn: list[DrawnFile], images: dict[str, ImageRef], rules: Rules, match: str = "path"
) -> Joined | None:
    """Result of joining one image at a time; None if names collide."""
    division, filters, masks = rules
    listed = {name: [file] for name, file in images.items()}
    try:
        return join_scalar(
            file_annotations(drawn), listed, masks, CATEGORIES, division, match, filters, ESTIMATES[1], SEED
        )
    except CollidingImagesError:
        return None


def shared_names(drawn: list[DrawnFile]) -> set[str]:
    ids: dict[str, set[int]] = {}
    for file in drawn:
        for row in file.images:
            ids.setdefault(name_key(row["file_name"]), set()).add(row["id"])
    return {name for name, found in ids.items() if len(found) > 1}


def check(found: tuple[list[ImageTask], Facts], expected: Joined, shared: Set[str]) -> None:
    tasks, facts = found
    assert tasks == expected.tasks
    assert Counter(listed(facts)) == expected.rejected
    assert facts.counts == expected.counted
    moved = {key: (rows.images, rows.annotations) for key, rows in facts.inputs.items() if key[0] in "bc"}
    assert {key: rows for key, rows in moved.items() if rows != (0, 0)} == expected.rows
    # A file that rows of several images reference counts as listed, also if all of these rows are rejected.
    assert {*facts.unlisted.compared} - shared == {*expected.unlisted} - shared
    assert sorted(facts.unmatched.compared) == expected.unmatched


@settings(max_examples=150)
@given(
    files(st.sampled_from(["x/shared.jpg", "x/gone.jpg", "../1.jpg"])), LISTED, RULES, st.randoms(use_true_random=False)
)
def test_join_annotations(drawn, images, rules, rng):
    """Blocks cut anywhere, in any order of arrival, give the result of one image at a time."""
    expected = expected_of(drawn, images, rules)
    if expected is None:
        with pytest.raises(CollidingImagesError):
            join(drawn, images, rules, rng)
    else:
        check(join(drawn, images, rules, rng), expected, shared_names(drawn))


@pytest.mark.parametrize(("texts", "is_image"), [(("a", "b"), True), (("a", ""), True), (("a", "b"), False)])
def test_two_ids_of_one_hash_end_job(texts, is_image):
    """A text that is empty stands for a number."""
    zeros, parts = np.zeros(1, np.int64), []
    for part, text in enumerate(texts):
        columns = {"id_text": ragged_texts([text])} if is_image else {"object_id_text": ragged_texts([text])}
        objects = object_columns([Annotation(7, 1, (0, 0, 1, 1), 1, False)])
        starts = np.array([0, 1])
        parts.append(Block(image_id=zeros, source=zeros, part=zeros + part, first_object_of_image=starts, **objects))
        parts[-1] = parts[-1].having(**columns)
    inputs = JoinInputs((), CATEGORIES, ONE, "path", SEED)
    with pytest.raises(CollidingImagesError, match=f"'a'.* have the same hash, {0 if is_image else 7}"):
        join_annotations(parts, inputs, FactsBuilder())


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], Reason.MASK_MISSING),
        ([ImageRef("m/1.png", 0, NO_FILE)], Reason.MASK_MISSING),
        ([ImageRef("m/1.png", MAX_FILE_BYTES + 1)], Reason.MASK_UNREADABLE),
        ([ImageRef("m/1.png", MAX_FILE_BYTES, "v")], None),
    ],
)
def test_match_mask(files, reason):
    labels = ImageLabels(panoptic=(PanopticAnnotation("m/1.png", "1.png", ()),))
    row = AnnotatedImage(ImageRow(5, "a.jpg"), "", labels=labels)
    image, reject = match_mask(row, {"m/1.png": files})
    assert (reject and (reject.reason, reject.image_id)) == (reason and (reason, 5))
    found = (PanopticAnnotation("m/1.png", "1.png", (), MAX_FILE_BYTES, "v"),)
    assert image.labels.panoptic == (() if reason else found)
    with pytest.raises(CollidingImagesError, match=r"PNG of one name is both m/a\.png and m/b\.png"):
        match_mask(row, {"m/1.png": [ImageRef("m/b.png", 1), ImageRef("m/a.png", 1)]})
