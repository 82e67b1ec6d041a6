"""Options are checked at the door, all at once."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import combinations

import pytest

from recordmill.pipelines.options.coco_options import ANNOTATIONS, CocoOptions
from recordmill.pipelines.options.convert_options import DEFAULT_SHARD_BYTES, MAX_SHARDS
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.splits import Division, SplitShares

KERAS = "--layout keras names shards without their split, so a folder has one: give one --split"
HALVES = (("a", Fraction(1, 2)), ("b", Fraction(1, 2)))
GIVEN = {"images": ("images",), "instances": ("a.json",), "output": "out"}
EACH_ITS_MASKS = "each panoptic file needs the folder or .zip of its PNGs"


def faults(**changed) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        CocoOptions(**GIVEN | changed)
    return str(caught.value).split("; ")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"images": ()}, "--images is missing"),
        (
            {"instances": ()},
            "--instances is missing (or another annotation file: --keypoints, --captions, --panoptic, …)",
        ),
        ({"output": ""}, "--output is missing"),
        ({"images": ("a", "b", "a")}, "--images a is given twice"),
        ({"instances": ("a.json", "a.json", "a.json")}, "--instances a.json is given twice"),
        ({"name": "a/b"}, "--name 'a/b' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": ".a"}, "--name '.a' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": "é"}, "--name 'é' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": "a\n"}, "--name 'a\\n' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"split": HALVES, "layout": "keras"}, KERAS),
        ({"group_from": "x"}, "--group-from keeps groups of images in one split, but --split does not divide them"),
        ({"groups": "x"}, "--groups keeps groups of images in one split, but --split does not divide them"),
        (
            {"split": HALVES, "groups": "x", "group_from": "x"},
            "--groups and --group-from both say which images belong together: give one",
        ),
        ({"split": HALVES, "group_from": "a("}, "--group-from a( is no regular expression (missing ) at position 2)"),
        ({"split": (("a-b", Fraction(1)),)}, "--split 'a-b' must be letters, digits and _: it is part of file names"),
        ({"layout": "yolo"}, "--layout 'yolo' is none of detection, keras, tfds"),
        ({"boxes": "Clip"}, "--boxes 'Clip' is none of clip, drop, keep"),
        ({"check": ""}, "--check '' is none of none, header, decode"),
        ({"writer": "tf"}, "--writer 'tf' is none of planned, beam"),
        ({"num_shards": 0}, "--num-shards 0 must be 1 to 99999"),
        ({"examples_per_shard": -1}, "--examples-per-shard -1 must be 1 or more"),
        (
            {"num_shards": MAX_SHARDS + 1},
            "--num-shards 100000 must be 1 to 99999",
        ),
        ({"num_shards": 2, "shard_size": 3}, "--num-shards and --shard-size contradict each other: give one"),
        (
            {"num_shards": 2, "shard_size": 3, "examples_per_shard": 4},
            "--num-shards and --shard-size and --examples-per-shard contradict each other: give one",
        ),
        (
            {"writer": "beam", "shard_size": 5},
            "--writer beam sizes shards by --num-shards only (without it, the runner chooses)",
        ),
        ({"min_area": -0.5}, "--min-area -0.5 must be a number of pixels², 0 or more"),
        ({"min_area": math.inf}, "--min-area inf must be a number of pixels², 0 or more"),
        ({"min_area": math.nan}, "--min-area nan must be a number of pixels², 0 or more"),
        ({"max_rejects": 1.5}, "--max-rejects 1.5 must be a fraction, 0 to 1"),
        ({"max_rejects": -0.1}, "--max-rejects -0.1 must be a fraction, 0 to 1"),
        ({"max_rejects": math.nan}, "--max-rejects nan must be a fraction, 0 to 1"),
        ({"workers": 0}, "--workers 0 must be 1 to 256"),
        ({"workers": 257}, "--workers 257 must be 1 to 256"),
        ({"masks": "PNG"}, "--masks 'PNG' is none of none, png, rle, both"),
        ({"keypoints": ("a.json", "b.json", "a.json")}, "--keypoints a.json is given twice"),
        (
            {"panoptic": ("p.json", "p.json"), "panoptic_masks": ("m", "n")},
            "--panoptic p.json is given twice",
        ),
        (
            {"panoptic": ("p.json",)},
            f"--panoptic is given 1 times and --panoptic-masks 0: {EACH_ITS_MASKS}",
        ),
        (
            {"panoptic_masks": ("m",)},
            f"--panoptic is given 0 times and --panoptic-masks 1: {EACH_ITS_MASKS}",
        ),
        (
            {"panoptic": ("p.json",), "panoptic_masks": ("m",), "stuff": ("s.json",)},
            "--panoptic and --stuff both make the semantic mask: give one",
        ),
        (
            {"masks": "png", "instances": (), "captions": ("c.json",)},
            "--masks png is of the objects of --instances or --keypoints, and neither is given",
        ),
        *(
            ({"layout": layout, **given}, f"--layout {layout} has no feature for {flag}: leave one of the two out")
            for layout, given, flag in (
                ("keras", {"masks": "rle"}, "--masks"),
                ("keras", {"panoptic": ("p.json",), "panoptic_masks": ("m",)}, "--panoptic"),
                ("tfds", {"stuff": ("s.json",)}, "--stuff"),
            )
        ),
        (
            {"layout": "keras", "writer": "beam"},
            "--writer beam cannot name shards as --layout keras does, by their number of examples",
        ),
    ],
)
def test_a_fault_is_told(changed, fault):
    assert faults(**changed) == [fault]


def test_all_faults_are_told_at_once():
    assert faults(images=(), name="/", boxes="x", workers=0) == [
        "--images is missing",
        "--boxes 'x' is none of clip, drop, keep",
        "--workers 0 must be 1 to 256",
        "--name '/' must be letters, digits, _ . - and begin with a letter or digit",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "coco-2017.v1_x"},
        {"split": (("val_2017", Fraction(1)),)},
        {"num_shards": MAX_SHARDS},
        {"writer": "beam", "num_shards": 3},
        {"max_rejects": 0.0, "min_area": 0.0},
        {"max_rejects": 1.0, "workers": 256},
        {"instances": (), "image_info": ("i.json",)},
        {"instances": (), "keypoints": ("k.json",), "masks": "both"},
        {"instances": (), "captions": ("c.json",), "layout": "tfds"},
        {"panoptic": ("p.json", "q.json"), "panoptic_masks": ("m", "m"), "layout": "tfds"},
        {"keypoints": ("a.json",), "captions": ("a.json",)},
        {"layout": "keras", "num_shards": 3},
    ],
)
def test_the_edges_of_what_is_allowed(changed):
    options = CocoOptions(**GIVEN | changed)
    assert {name: getattr(options, name) for name in changed} == changed


@pytest.mark.parametrize(
    ("changed", "sizing"),
    [
        ({}, ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)),
        ({"shard_size": 7}, ShardSizing(shard_bytes=7)),
        ({"num_shards": 7}, ShardSizing(num_shards=7)),
        ({"examples_per_shard": 7}, ShardSizing(examples_per_shard=7)),
        ({"layout": "tfds"}, ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)),
        ({"layout": "keras"}, ShardSizing(examples_per_shard=4096)),
        ({"layout": "keras", "examples_per_shard": 7}, ShardSizing(examples_per_shard=7)),
        ({"layout": "keras", "shard_size": 7}, ShardSizing(shard_bytes=7)),
        ({"layout": "keras", "num_shards": 7}, ShardSizing(num_shards=7)),
    ],
)
def test_sizing(changed, sizing):
    assert CocoOptions(**GIVEN | changed).sizing == sizing


def test_sources_are_all_annotation_files_with_their_kinds_and_masks():
    options = CocoOptions(
        images=("images",),
        output="out",
        instances=("a.json", "b.json"),
        keypoints=("k.json",),
        captions=("c.json",),
        panoptic=("p.json", "q.json"),
        panoptic_masks=("p.zip", "q"),
        image_info=("i.json",),
    )
    assert set(options.sources) == {
        AnnotationSource(AnnotationKind.INSTANCES, "a.json"),
        AnnotationSource(AnnotationKind.INSTANCES, "b.json"),
        AnnotationSource(AnnotationKind.KEYPOINTS, "k.json"),
        AnnotationSource(AnnotationKind.CAPTIONS, "c.json"),
        AnnotationSource(AnnotationKind.PANOPTIC, "p.json", "p.zip"),
        AnnotationSource(AnnotationKind.PANOPTIC, "q.json", "q"),
        AnnotationSource(AnnotationKind.IMAGE_INFO, "i.json"),
    }
    assert len(options.sources) == 7
    stuff = CocoOptions(images=("images",), output="out", stuff=("s.json",))
    assert stuff.sources == (AnnotationSource(AnnotationKind.STUFF, "s.json"),)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({}, ()),
        ({"masks": "png"}, (Part.MASK_PNG,)),
        ({"masks": "rle"}, (Part.MASK_RLE,)),
        ({"masks": "both"}, (Part.MASK_PNG, Part.MASK_RLE)),
        ({"keypoints": ("k.json",), "captions": ("c.json",)}, (Part.KEYPOINTS, Part.CAPTIONS)),
        ({"stuff": ("s.json",)}, (Part.SEMANTIC,)),
        ({"panoptic": ("p.json",), "panoptic_masks": ("m",)}, (Part.SEMANTIC, Part.PANOPTIC)),
        ({"panoptic": ("p.json",), "panoptic_masks": ("m",), "layout": "tfds"}, (Part.PANOPTIC,)),
        ({"captions": ("c.json",), "layout": "tfds"}, (Part.CAPTIONS,)),
        ({"image_info": ("i.json",), "layout": "keras"}, ()),
    ],
)
def test_a_record_holds_what_the_flags_ask_for_and_nothing_else_on_top(changed, parts):
    options = CocoOptions(**GIVEN | changed)
    assert options.table == LAYOUTS[options.layout].with_parts(parts)
    assert options.table.parts == parts


def test_options_do_not_change():
    options = CocoOptions(**GIVEN)
    with pytest.raises(FrozenInstanceError):
        options.seed = 1


# Every option either decides the records, and is in the recipe, or does not, and is not.

DECIDE = {
    "num_shards": 3,
    "shard_size": 5,
    "examples_per_shard": 4,
    "gzip": True,
    "boxes": "keep",
    "bbox_format": "xyxy",
    "no_crowd": True,
    "no_list": True,
    "min_area": 1.5,
    "categories": ("cat",),
    "check": "none",
    "seed": 1,
    "writer": "beam",
    "masks": "png",
    "match": "suffix",
    "format": "jpeg",
    "max_side": 100,
    "jpeg_quality": 80,
}
DIVIDE = {"split": HALVES, "split_seed": 1, "group_from": "x"}
AS_COUNTS = {"captions": ("c.json",), "caption_text": "counts"}
DECIDE_WITH_TEXTS = {
    "caption_text": "tfidf",
    "text_features": 9,
    "min_df": "2",
    "ngrams": "1,2",
    "no_lower": True,
    "fit_split": "val",
    "text_names": "index=i,value=v",
}
IN_THE_RECIPE_ITSELF = {"images", "name", "layout", "panoptic_masks", "stop_words", "encoders", "groups", *ANNOTATIONS}
DECIDE_NOTHING = {
    "output": "elsewhere",
    "duplicates": "fail",
    "max_rejects": 0.5,
    "overwrite": True,
    "dry_run": True,
    "workers": 3,
}


def test_every_option_is_of_one_kind():
    decide = {*DECIDE, *DIVIDE, *DECIDE_WITH_TEXTS}
    assert set(CocoOptions.__dataclass_fields__) == {*decide, *IN_THE_RECIPE_ITSELF, *DECIDE_NOTHING}


@pytest.mark.parametrize("name", DECIDE)
def test_an_option_that_decides_the_records_is_recorded(name):
    plain = CocoOptions(**GIVEN).record_options
    assert CocoOptions(**GIVEN | {name: DECIDE[name]}).record_options != plain


@pytest.mark.parametrize("options", [CocoOptions, FolderOptions])
def test_what_divides_is_recorded_and_groups_only_where_there_are_some(options):
    given = {name: GIVEN[name] for name in (GIVEN if options is CocoOptions else ("images", "output"))}
    records = [
        options(**given, **{name: DIVIDE[name] for name in names}).record_options
        for names in ((), ("split",), ("split", "split_seed"), ("split", "split_seed", "group_from"))
    ]
    assert all(one != other for one, other in combinations(records, 2))
    assert ["group_from" in each for each in records] == [False, False, False, True]


def test_groups_are_looked_for_in_letters_as_names_have_them():
    given = CocoOptions(**GIVEN, split=HALVES, group_from="e\u0301")
    assert given.division == Division(SplitShares(HALVES), "\u00e9")


def test_a_single_split_of_coco_is_the_recipe_s_and_no_option():
    assert "split" not in CocoOptions(**GIVEN, split=(("val", Fraction(1)),)).record_options


@pytest.mark.parametrize("name", DECIDE_WITH_TEXTS)
def test_an_option_that_decides_texts_is_recorded(name):
    plain = CocoOptions(**GIVEN | AS_COUNTS).record_options
    assert CocoOptions(**GIVEN | AS_COUNTS | {name: DECIDE_WITH_TEXTS[name]}).record_options != plain


@pytest.mark.parametrize("name", DECIDE_NOTHING)
def test_an_option_that_does_not_is_not(name):
    plain = CocoOptions(**GIVEN).record_options
    assert CocoOptions(**GIVEN | {name: DECIDE_NOTHING[name]}).record_options == plain


def test_the_usual_format_of_boxes_is_the_same_recipe_whether_it_is_given_or_found():
    given = CocoOptions(**GIVEN, bbox_format="xywh")
    assert given.record_options == CocoOptions(**GIVEN).record_options
    assert [source.bbox_format for source in given.sources] == [BoxFormat.XYWH] * len(given.sources)


def test_the_order_of_categories_is_no_other_recipe():
    orders = [CocoOptions(**GIVEN, categories=names).record_options for names in (("cat", "dog"), ("dog", "cat"))]
    assert orders[0] == orders[1]
