import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import AnnotatedImage, Annotation, ImageLabels, ImageRow, PanopticAnnotation
from recordmill.schemas.inputs.files import NO_FILE, File, ImageFile
from recordmill.schemas.inputs.images import MAX_FILE_BYTES, ImageTask
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.rejects import Metric, Reason
from recordmill.transforms.blocks.image_tasks import image_tasks, object_columns
from recordmill.transforms.blocks.run_step import hash_images, image_order
from recordmill.transforms.coco import join_annotations as module
from recordmill.transforms.coco.join_annotations import join_annotations, match_mask
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.join.match_blocks import drop_faulty_images
from tests.transforms.coco.drawn_files import (
    CATEGORIES,
    IMAGE_IDS,
    DrawnFile,
    blocks_of,
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
MASKS = [
    None,
    {
        "masks/1.png": [ImageFile("masks/1.png", 7, "m1")],
        "masks/big.png": [ImageFile("masks/big.png", MAX_FILE_BYTES + 1)],
    },
    {"masks/1.png": [ImageFile("masks/./1.png", 7, "m1")], "masks/2.png": [ImageFile("masks/2.png", 0, NO_FILE)]},
]
FILES = [None, *[(5, "1")] * 5, (MAX_FILE_BYTES + 1, "1"), (0, NO_FILE)]
LISTED = st.fixed_dictionaries(
    {name: st.sampled_from(FILES) for name in [*map(name_of, IMAGE_IDS), "x/other.jpg", "x/shared.jpg"]}
).map(lambda files: {name: ImageFile(f"pics/{name}", *file) for name, file in files.items() if file})
Rules = tuple[Division, dict | None]
RULES = st.tuples(st.sampled_from([ONE, THIRDS, GROUPS]), st.sampled_from(MASKS))


def join(
    drawn: list[DrawnFile], images: dict[str, ImageFile], rules: Rules, rng: random.Random
) -> tuple[list[ImageTask], Facts]:
    """All steps from decoded rows to whole Blocks."""
    division, masks = rules
    builder = FactsBuilder()
    sources = [file.source for file in drawn]
    rows, annotations = blocks_of(drawn, rng)
    matched = matched_rows(rows, images, division, builder, rng)
    tasks = []
    for _, group in sorted(in_ranges([*matched, *annotations], SEED, rng.randrange(4), rng).items()):
        block = join_annotations(group, sources, CATEGORIES, division, masks, builder)
        block = drop_faulty_images(block, division.names, builder)
        block = block.take(image_order(block, hash_images(block.image_id, SEED)))
        block.check("test")
        tasks += image_tasks(block, division.names)
    return tasks, builder.build()


def order(task: ImageTask) -> tuple[int, int]:
    return int(hash_images(np.array([task.image_id]), SEED)[0]), task.image_id


def assert_is_complete(drawn: list[DrawnFile], tasks: list[ImageTask], facts: Facts) -> None:
    """Each row is in a record, merged with another row, or rejected."""
    rejects = [reject for _, reject in listed(facts)]
    merged = sum(number for (_, metric), number in facts.counts.items() if metric == Metric.ANNOTATIONS_MERGED)
    ids, bad_ids = [task.image_id for task in tasks], [reject.id for reject in rejects if reject.what == "image"]
    assert {*ids, *bad_ids} == {row["id"] for file in drawn for row in file.images}
    written = sum(len(task.annotations) + task.labels.rows for task in tasks) + merged
    rejected = sum(1 if reject.what == "annotation" else reject.annotations for reject in rejects)
    assert written + rejected == sum(len(file.annotations) for file in drawn)


@settings(max_examples=150)
@given(
    files(st.sampled_from(["x/shared.jpg", "x/gone.jpg", "../1.jpg"])), LISTED, RULES, st.randoms(use_true_random=False)
)
def test_join_annotations(drawn, images, rules, rng):
    """Blocks cut anywhere, in any order of arrival, give the same; so do all images if they are merged one by one."""
    try:
        tasks, facts = join(drawn, images, rules, rng)
    except CollidingImagesError:
        with pytest.raises(CollidingImagesError):
            join(drawn, images, rules, rng)
        return
    assert [order(task) for task in tasks] == sorted({order(task) for task in tasks})
    assert_is_complete(drawn, tasks, facts)
    assert {*facts.unlisted.compared} <= images.keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module, "_find_odd_ids", lambda *sides: np.unique(np.concatenate([s.image_id for s in sides[:2]]))
        )
        merged_tasks, merged_facts = join(drawn, images, rules, rng)
    assert merged_tasks == tasks
    for reported in (facts, merged_facts):
        reported.rejects = Counter(listed(reported))
    assert facts == merged_facts


@pytest.mark.parametrize(("texts", "is_image"), [(("a", "b"), True), (("a", ""), True), (("a", "b"), False)])
def test_two_ids_of_one_hash_end_job(texts, is_image):
    """A text that is empty stands for a number."""
    zeros, parts = np.zeros(1, np.int64), []
    for part, text in enumerate(texts):
        columns = {"id_text": ragged_texts([text])} if is_image else {"object_id_text": ragged_texts([text])}
        objects = object_columns([Annotation(7, 1, (0, 0, 1, 1), 1, False)])
        starts = np.array([0, 1])
        parts.append(Block(image_id=zeros, source=zeros, part=zeros + part, first_object_of_image=starts, **objects))
        parts[-1] = parts[-1].replace(**columns)
    with pytest.raises(CollidingImagesError, match=f"'a'.* have the same hash, {0 if is_image else 7}"):
        join_annotations(parts, [], CATEGORIES, ONE, None, FactsBuilder())


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], Reason.MASK_MISSING),
        ([ImageFile("m/1.png", 0, NO_FILE)], Reason.MASK_MISSING),
        ([ImageFile("m/1.png", MAX_FILE_BYTES + 1)], Reason.MASK_UNREADABLE),
        ([ImageFile("m/1.png", MAX_FILE_BYTES, "v")], None),
    ],
)
def test_match_mask(files, reason):
    labels = ImageLabels(panoptic=(PanopticAnnotation(File("m/1.png"), "1.png", ()),))
    row = AnnotatedImage(ImageRow(5, "a.jpg"), "", labels=labels)
    image, reject = match_mask(row, {"m/1.png": files})
    assert (reject and (reject.reason, reject.image_id)) == (reason and (reason, 5))
    matched = (PanopticAnnotation(File("m/1.png", MAX_FILE_BYTES, "v"), "1.png", ()),)
    assert image.labels.panoptic == (() if reason else matched)
    with pytest.raises(CollidingImagesError, match=r"PNG of one name is both m/a\.png and m/b\.png"):
        match_mask(row, {"m/1.png": [ImageFile("m/b.png", 1), ImageFile("m/a.png", 1)]})
