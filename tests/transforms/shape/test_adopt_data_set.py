"""Images that are added to a data set get its classes, fields and free ids."""

import zlib

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.image_records import IMAGE_ROW, IMAGES_VERSION, ShardImages
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.shape.adopt_data_set import AdoptDataSet, RenumberImages, adopt_table
from recordmill.transforms.shape.union_labels import grow_labels
from tests.beam_pipeline import Pipeline
from tests.transforms.dataset.kinds import applied
from tests.transforms.shape.test_join_sets import SPLITS, image, keyed_blocks, named, tasks_of

LAYOUT = LAYOUTS["detection"]
TABLE = LAYOUT.with_parts(())


def with_fields(*names: str, kind: FeatureKind = FeatureKind.INT64):
    return add_fields(TABLE, [FieldColumn("object", name, kind) for name in names]).table


def stuff(*pairs: tuple[int, str]) -> tuple[Category, ...]:
    return tuple(Category(*pair, isthing=0) for pair in pairs)


def person(*points: str) -> LabelMap:
    return LabelMap((Category(1, "person", keypoints=points),))


@pytest.mark.parametrize(
    ("known", "labels", "expected", "ids"),
    [
        (named((2, "b"), (1, "a")), named((1, "b"), (7, "d"), (3, "c")), "b2 a1 c3 d4", {1: 2, 7: 4, 3: 3}),
        (named((1, "a"), (5, "a")), named((1, "a"), (2, "a"), (3, "a")), "a1 a5 a6", {1: 1, 2: 5, 3: 6}),
        (named((1, "a")), named(), "a1", {}),
        (named(), named((4, "a")), "a4", {4: 4}),
    ],
)
def test_classes_of_the_data_set_stay_and_new_ones_follow(known, labels, expected, ids):
    grown, mapping = grow_labels(labels, ExistingLabels(known, "out"), TABLE)
    assert " ".join(f"{one.name}{one.id}" for one in grown.categories) == expected
    assert mapping.ids == ids


PANOPTIC = LAYOUT.with_parts((Part.SEMANTIC, Part.PANOPTIC))
POSES = LAYOUT.with_parts((Part.KEYPOINTS,))
SHIFTED = LabelMap((Category(0, "a"),), stuff((1, "sky")))
COCO = LabelMap((Category(400, "a"),), stuff((93, "sky")))


@pytest.mark.parametrize(
    ("known", "labels", "table", "match"),
    [
        (SHIFTED, named((1, "b")), TABLE, "the class 'b', which would change the labels of other classes .* of out"),
        (COCO, LabelMap((), stuff((1, "sea"))), PANOPTIC, "the class 'sea', .* values in semantic masks of other"),
        (person("nose"), LabelMap((Category(2, "hand", keypoints=("x", "y")),)), POSES, "'hand', .* number of keypo"),
        (person("nose"), person("nose", "ear"), TABLE, "1 keypoints in out and 2 in the images to add. Rename it by"),
        (named((1, "sky")), LabelMap((), stuff((1, "sky"))), TABLE, "is a thing in out and stuff in the images to add"),
    ],
)
def test_numbers_of_other_classes_may_not_change(known, labels, table, match):
    with pytest.raises(CategoryError, match=match):
        grow_labels(labels, ExistingLabels(known, "out"), table)


@pytest.mark.parametrize("table", [TABLE, LAYOUT.with_parts((Part.LVIS, Part.CATEGORY_ID)), with_fields()])
def test_images_may_lack_features_of_the_input(table):
    known = LAYOUT.with_parts((Part.LVIS, Part.TAGS))
    assert adopt_table(table, known, "out") is known


@pytest.mark.parametrize(
    ("table", "known", "match"),
    [
        (LAYOUT.with_parts((Part.LVIS,)), TABLE, "^the images have lvis, and the records of out do not. "),
        (with_fields("score", "view2"), with_fields("score"), "^the images have the field view2, and the records of"),
    ],
)
def test_images_may_not_have_more_features(table, known, match):
    with pytest.raises(ConfigError, match=match):
        adopt_table(table, known, "out")


@pytest.mark.parametrize(("set_name", "prefix"), [("", ""), ("more", "more/")])
def test_blocks_get_names_and_classes(set_name, prefix):
    known = ExistingLabels(named((3, "cat"), (1, "ant")), "out", with_fields("score"))
    tasks = [image(5, "1.jpg", objects={9: 1, 8: 2})]
    with Pipeline() as p:
        sides = p | "L" >> beam.Create([named((1, "cat"), (2, "cow"))]), p | "T" >> beam.Create([TABLE])
        blocks = p | "B" >> beam.Create(keyed_blocks(tasks, SPLITS))
        adopt = AdoptDataSet(known, SPLITS, set_name)
        (placed, labels, table), facts = applied((blocks, *sides), adopt)
        rows = placed | beam.FlatMap(
            lambda one: [(t.file_name, t.ref.path, [a.category_id for a in t.annotations]) for t in tasks_of(one)]
        )
        assert_that(rows, equal_to([(f"{prefix}1.jpg", "/data/1.jpg", [3, 4])]), "rows")
        assert_that(labels, equal_to([named((3, "cat"), (1, "ant"), (4, "cow"))]), "labels")
        assert_that(table, equal_to([known.table]), "table")
        texts = facts | beam.FlatMap(lambda one: [text for _, text in one.warnings])
        expected = [
            "added images have 1 new class: 'cow' (id 4)",
            "field score: the added images have no value; -1 is stored there",
        ]
        assert_that(texts, equal_to(expected), "warnings")


def known_shard(rows: list[tuple[str, int, int, tuple[int, ...]]], **fields) -> ShardImages:
    """ShardImages of (name, id, number of records, ids of annotations)."""
    array = np.zeros(len(rows), IMAGE_ROW)
    array["id"], array["records"] = [row[1] for row in rows], [row[2] for row in rows]
    array["objects"] = [len(row[3]) for row in rows]
    ids = np.array([id_ for row in rows for id_ in row[3]], "<i8")
    names = msgspec.Raw(msgspec.json.encode([row[0] for row in rows]))
    return ShardImages("s", names, array.tobytes(), IMAGES_VERSION, zlib.compress(ids.tobytes()), **fields)


TILES = msgspec.Raw(b'["1.jpg", "1.jpg"]')
KNOWN = [
    known_shard([("other.jpg", 5, 1, (9,)), ("2.jpg", 6, 1, (1,)), ("gone.jpg", 7, 0, ())]),
    known_shard([("1_0.jpg", 1, 1, (2,)), ("1_1.jpg", 1, 1, (2,))], sources=TILES),
    known_shard([("a.jpg", 0, 1, ())]),
]


def test_ids_of_other_files_become_hashes():
    tasks = [
        image(5, "new.jpg", objects={8: 1, 9: 1}),  # other.jpg has both
        image(6, "2.jpg", "val", objects={1: 1}),  # the same file in another split
        image(7, "7.jpg"),  # gone.jpg has no record
        image(1, "1.jpg", objects={2: 1}),  # tiles have the name of their image
        image(0, "0.jpg"),  # records of a.jpg have no ids
    ]
    with Pipeline() as p:
        blocks, shards = (
            p | "B" >> beam.Create(keyed_blocks(tasks, SPLITS, per_block=2)),
            p | "K" >> beam.Create(KNOWN),
        )
        ids = (
            (blocks, shards)
            | RenumberImages()
            | beam.FlatMap(
                lambda one: [(one[0], t.file_name, t.image_id, [a.id for a in t.annotations]) for t in tasks_of(one)]
            )
        )
        expected = [
            (0, "new.jpg", name_id("new.jpg"), [8, name_id("new.jpg annotation 9")]),
            (0, "2.jpg", 6, [1]),
            (1, "7.jpg", 7, []),
            (1, "1.jpg", 1, [2]),
            (2, "0.jpg", 0, []),
        ]
        assert_that(ids, equal_to(expected))
