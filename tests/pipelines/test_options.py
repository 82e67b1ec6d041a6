"""Options are checked at once: which flags are at fault, what is allowed, and what decides the records."""

import math

import pytest

from recordmill.pipelines.dataset_options import VerifyOptions
from recordmill.pipelines.model_options import LabelledModelOptions, RowsModelOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.inputs.encoders import TextForm, TextSettings
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.option import Options, flag, option_fields, split_shares
from recordmill.schemas.inputs.options import MAX_SHARDS
from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.schemas.layouts import CLASSIFICATION, LAYOUTS
from recordmill.schemas.names import NameSources
from recordmill.schemas.shards import DEFAULT_SHARD_BYTES, ShardSizing
from recordmill.transforms.coco.coco_options import ANNOTATIONS, CocoOptions
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.table.table_options import TableOptions

HALVES = split_shares("a=1/2,b=1/2")
GIVEN = {
    CocoOptions: {"images": ("images",), "instances": ("a.json",), "output": "out"},
    FolderOptions: {"data": ("images",), "output": "out"},
    TableOptions: {"data": ("r.csv",), "output": "out"},
    LabelledModelOptions: {"data": ("images",), "model": "m", "output": "out"},
    RowsModelOptions: {"data": ("t.csv",), "model": "m", "output": "out", "image_column": "path", "label": "kind"},
    VerifyOptions: {"folder": "out"},
}
LABELS = {"labels": ("labels.csv",)}
PANOPTIC = {"panoptic": ("p.json",), "panoptic_masks": ("m",)}
CAPTIONS = {"captions": ("c.json",), "caption_text": "counts"}
IMAGE_ROWS = {"images": ("pics",), "image_column": "path"}
TEXTS = {"text_column": ("t",), "text": "counts"}
BEYOND = (1 << 63, -(1 << 63) - 1)


def options(kind: type[Options], **more) -> Options:
    return kind(**GIVEN[kind] | more)


@pytest.mark.parametrize("more", [{}, {"group_from": "x"}, {"groups": "x"}, {"instances": (), **CAPTIONS}])
@pytest.mark.parametrize("kind", [CocoOptions, FolderOptions])
def test_cure_of_missed_shares_is_allowed(kind, more):
    more = {"split": HALVES, **({} if kind is FolderOptions and "captions" in more else more)}
    cure = options(kind, **more).share_cure
    options(kind, **more, split_by="rank")
    if "--stratify" in cure:
        options(kind, **more, stratify=True)
    else:
        with pytest.raises(ConfigError, match="--stratify"):
            options(kind, **more, stratify=True)


# What is refused: options, and the flags that the faults begin with.

REFUSED = [
    (CocoOptions, {"images": ()}, "DATA"),
    (CocoOptions, {"instances": ()}, "--instances"),
    (CocoOptions, {"output": ""}, "--output"),
    *((CocoOptions, {"name": name}, "--name") for name in ("a/b", ".a", "é", "a\n")),
    *((CocoOptions, {"split": f"{name}=1"}, "--split") for name in ("a-b", "all", "x" * 81)),
    (CocoOptions, {"split": HALVES, "layout": "keras"}, "--layout"),
    (CocoOptions, {"layout": "keras", "writer": "beam"}, "--writer"),
    (CocoOptions, {"group_from": "x"}, "--group-from"),
    (CocoOptions, {"groups": "x"}, "--groups"),
    (CocoOptions, {"split": HALVES, "groups": "x", "group_from": "x"}, "--groups"),
    (CocoOptions, {"split": HALVES, "group_from": "a("}, "--group-from"),
    (CocoOptions, {"split_by": "rank"}, "--split-by"),
    (CocoOptions, {"stratify": True}, "--stratify"),
    (CocoOptions, {"split": HALVES, "split_by": "rank", "stratify": True}, "--stratify"),
    (CocoOptions, {"split": HALVES, "stratify": True, "instances": (), **CAPTIONS}, "--stratify"),
    (FolderOptions, {"split": HALVES, "split_by": "rank", "stratify": True}, "--stratify"),
    (CocoOptions, {"exclude": ("x",), "exclude_kinds": ("blured",)}, "--exclude-kinds"),
    *(
        (CocoOptions, {name: "x"}, flag(name))
        for name in ("layout", "boxes", "check", "writer", "masks", "image_format")
    ),
    *((CocoOptions, {"num_shards": number}, "--num-shards") for number in (0, MAX_SHARDS + 1)),
    (CocoOptions, {"examples_per_shard": -1}, "--examples-per-shard"),
    *((kind, {"limit": 0, "max_per_class": -1}, "--limit --max-per-class") for kind in (CocoOptions, FolderOptions)),
    (TableOptions, {"max_per_class": 5}, "--max-per-class"),
    (CocoOptions, {"num_shards": 2, "shard_size": 3}, "--num-shards"),
    (CocoOptions, {"num_shards": 2, "shard_size": 3, "examples_per_shard": 4}, "--num-shards"),
    (CocoOptions, {"writer": "beam", "shard_size": 5}, "--writer"),
    (CocoOptions, {"writer": "beam", "duplicates": "leakage"}, "--writer"),
    (CocoOptions, {"writer": "beam", "examples_per_shard": 5}, "--writer"),
    *((CocoOptions, {"min_area": area}, "--min-area") for area in (-0.5, math.inf, math.nan)),
    *((CocoOptions, {"max_rejects": share}, "--max-rejects") for share in (1.5, -0.1, math.nan)),
    *((CocoOptions, {"workers": number}, "--workers") for number in (0, 257)),
    *((CocoOptions, {"max_side": side}, "--max-side") for side in (0, 65_501)),
    *((CocoOptions, {"jpeg_quality": quality}, "--jpeg-quality") for quality in (0, 101)),
    *((CocoOptions, {"seed": seed}, "--seed") for seed in BEYOND),
    (CocoOptions, {"panoptic": ("p.json",)}, "--panoptic"),
    (CocoOptions, {"panoptic_masks": ("m",)}, "--panoptic"),
    (CocoOptions, {**PANOPTIC, "stuff": ("s.json",)}, "--panoptic"),
    (CocoOptions, {"masks": "png", "instances": (), "captions": ("c.json",)}, "--masks"),
    (CocoOptions, {"layout": "keras", "masks": "rle"}, "--layout"),
    (CocoOptions, {"layout": "keras", **PANOPTIC}, "--layout"),
    (CocoOptions, {"layout": "tfds", "stuff": ("s.json",)}, "--layout"),
    (CocoOptions, {"layout": "keras", **CAPTIONS}, "--layout --layout"),
    (CocoOptions, {"no_list": True, "images": ("a", "b")}, "--no-list"),
    (CocoOptions, {"no_list": True, "images": ("a.zip",)}, "--no-list"),
    (CocoOptions, {"no_list": True, "match": "name"}, "--match"),
    (CocoOptions, {"name": "/", "boxes": "x", "workers": 0}, "--workers --boxes --name"),
    # texts
    (CocoOptions, {**CAPTIONS, "caption_text": "raw", "ngrams": "1,2"}, "--ngrams"),
    (CocoOptions, {**CAPTIONS, "caption_text": "raw", "encoders": ("e",)}, "--encoders"),
    (CocoOptions, {"caption_text": "counts"}, "--caption-text"),
    (CocoOptions, {**CAPTIONS, "caption_text": "tokens", "ngrams": "1,2"}, "--ngrams"),
    *((CocoOptions, {**CAPTIONS, "ngrams": ngrams}, "--ngrams") for ngrams in ("2,1", "1", "1,10")),
    *((CocoOptions, {**CAPTIONS, "min_df": number}, "--min-df") for number in ("0", "2.0", "0.0")),
    (CocoOptions, {**CAPTIONS, "text_features": 0}, "--text-features"),
    (CocoOptions, {**CAPTIONS, "fit_split": "a-b"}, "--fit-split"),
    (CocoOptions, {**CAPTIONS, "encoders": ("e",), "min_df": "2", "no_lower": True}, "--encoders"),
    *(
        (CocoOptions, {**CAPTIONS, "text_names": names}, "--text-names")
        for names in ("tokens=a", "index=a,index=b", "index=a,value=", "index=a,value=a", "index=image/width")
    ),
    (CocoOptions, {**CAPTIONS, "layout": "tfds", "text_names": "index=captions/i"}, "--text-names"),
    # folder
    (FolderOptions, {"layout": "detection"}, "--layout"),
    (FolderOptions, {"label_from": "exif"}, "--label-from"),
    (FolderOptions, {"label_separator": "", "label_from": "name"}, "--label-separator"),
    *((FolderOptions, {"label_separator": "-", **more}, "--label-separator") for more in ({}, LABELS)),
    (FolderOptions, {"image_column": "x"}, "--image-column"),
    (FolderOptions, {"split_column": "x"}, "--split-column"),
    (FolderOptions, {"label": "x"}, "--label"),
    (FolderOptions, {**LABELS, "label_from": "name"}, "--labels"),
    (FolderOptions, {"classes": ("cat", "dog", "cat", "cat")}, "--classes"),
    (FolderOptions, {"stratify": True}, "--stratify"),
    (FolderOptions, {"split_seed": 3}, "--split-seed"),
    (FolderOptions, {"stratify": True, "split_seed": 1, "split": "val=1"}, "--stratify --split-seed"),
    *((FolderOptions, {"split": HALVES, "split_seed": seed}, "--split-seed") for seed in BEYOND),
    (FolderOptions, {"split": HALVES, "stratify": True, "group_from": "x"}, "--stratify"),
    *(
        (FolderOptions, {"split": text}, "--split")
        for text in ("val=0.5,Val=0.5", "a=0,b=1", "a=0.8,b=0.1", "a=1.5", "a=1e400,b=1", "a=0.5,a=0.5")
    ),
    (FolderOptions, {"split": "a=1,a=1"}, "--split --split"),
    # table
    (TableOptions, {"data": ()}, "DATA"),
    (TableOptions, {"images": ("pics",)}, "--images"),
    (
        TableOptions,
        {"raw_size": "2x2", "check": "none", "max_side": 9, "workers": 2},
        "--raw-size --check --max-side --workers",
    ),
    (TableOptions, {"exclude": ("x",)}, "--exclude"),
    (TableOptions, {"split_by": "rank"}, "--split-by"),
    (TableOptions, {"split_by": "rank", "split": HALVES, "label": "x", "stratify": True}, "--split-by"),
    (TableOptions, {**IMAGE_ROWS, "raw_size": "12"}, "--raw-size"),
    (
        TableOptions,
        {**IMAGE_ROWS, "raw_size": "2x2", "image_format": "png", "check": "header"},
        "--check --image-format",
    ),
    (TableOptions, {"split": HALVES, "stratify": True}, "--stratify"),
    (TableOptions, {"label": "kind", "stratify": True}, "--stratify"),
    (TableOptions, {"label": "kind", "split": HALVES, "stratify": True, "group_column": "g"}, "--stratify"),
    (TableOptions, {"label": "kind", "stratify": True, "split_column": "s"}, "--stratify"),
    (TableOptions, {"split": HALVES, "split_column": "s"}, "--split-column"),
    (TableOptions, {"group_column": "g"}, "--group-column"),
    (TableOptions, {"rename": ("a",)}, "--rename"),
    (TableOptions, {"rename": ("a=b", "a=c")}, "--rename"),
    (TableOptions, {"label_as": "text"}, "--label-as"),
    (TableOptions, {**IMAGE_ROWS, "rename": ("image/width=image/height",)}, "--rename"),
    (TableOptions, {**TEXTS, "text": "tfidf", "dtype": ("t/value=int64",)}, "--dtype"),
    (CocoOptions, {"dtype": ("image/width=int32",)}, "--dtype"),
    (CocoOptions, {"dtype": ("image/wide=int64",)}, "--dtype"),
    (CocoOptions, {"rename": ("image/caption=caption",)}, "--rename"),
    (FolderOptions, {"rename": ("image/encode=image",)}, "--rename"),
    (TableOptions, {"default": ("a=1", "a=2")}, "--default"),
    (TableOptions, {"classes": ("a",)}, "--classes"),
    (TableOptions, {"label": "k", "classes": ("a", "a")}, "--classes"),
    (TableOptions, {"encoding": "runes"}, "--encoding"),
    (TableOptions, {"text_column": ("t",)}, "--text-column"),
    (TableOptions, {"text": "counts"}, "--text"),
    (TableOptions, {**TEXTS, "text_column": ("t", "t")}, "--text-column"),
    (TableOptions, {**TEXTS, "split": HALVES}, "--text-column"),
    *(
        (TableOptions, {**TEXTS, "label": "kind", "text_column": (name,)}, "--text-column")
        for name in ("kind", "classes")
    ),
    (TableOptions, {**TEXTS, "text_names": "tokens=a"}, "--text-names"),
    (TableOptions, {**TEXTS, "text_column": ("s", "t"), "text_names": "index=a"}, "--text-names"),
    # --model
    (LabelledModelOptions, {"input_size": "12"}, "--input-size"),
    (LabelledModelOptions, {"image_column": "path"}, "--image-column"),
    (LabelledModelOptions, {"split_column": "set"}, "--split-column"),
    (LabelledModelOptions, {"data": ()}, "DATA"),
    (LabelledModelOptions, {"model": ""}, "--model"),
    (LabelledModelOptions, {"feature_dtype": "int8"}, "--feature-dtype"),
    (RowsModelOptions, {"delimiter": "ab", "stratify": True, "batch": 0}, "--batch --stratify --delimiter"),
    (RowsModelOptions, {"label": None}, "--label"),
    (RowsModelOptions, {"image_column": None}, "--image-column"),
    (RowsModelOptions, {"split_column": "set", "split": HALVES}, "--split-column"),
    # verify
    (VerifyOptions, {"folder": ""}, "OUT"),
    (VerifyOptions, {"images": ("pictures",)}, "--images"),
    (VerifyOptions, {"tolerance": 0.0}, "--tolerance"),
    (VerifyOptions, {"recompute": 1, "check": "hashes"}, "--recompute"),
]


@pytest.mark.parametrize(("kind", "changed", "flags"), REFUSED)
def test_refused(kind, changed, flags):
    with pytest.raises(ConfigError) as caught:
        options(kind, **changed)
    faults = str(caught.value).replace("Val and val, which differ only in case, so that", "").split("; ")
    flag_faults = [fault.split()[0].rstrip(":") for fault in faults if fault.startswith(("--", "OUT", "DATA"))]
    assert flag_faults == flags.split()


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (CocoOptions, {"name": "coco-2017.v1_x"}),
        (CocoOptions, {"split": split_shares("val_2017=1")}),
        (CocoOptions, {"num_shards": MAX_SHARDS}),
        (CocoOptions, {"writer": "beam", "num_shards": 3}),
        (CocoOptions, {"max_rejects": 0.0, "min_area": 0.0}),
        (CocoOptions, {"max_rejects": 1.0, "workers": 256, "max_side": 65_500, "jpeg_quality": 1}),
        (CocoOptions, {"instances": (), "image_info": ("i.json",)}),
        (CocoOptions, {"instances": (), "keypoints": ("k.json",), "masks": "both"}),
        (CocoOptions, {"instances": (), "captions": ("c.json",), "layout": "tfds"}),
        (CocoOptions, {"panoptic": ("p.json", "q.json"), "panoptic_masks": ("m", "m"), "layout": "tfds"}),
        (CocoOptions, {"keypoints": ("a.json",), "captions": ("a.json",)}),
        (CocoOptions, {"layout": "keras", "num_shards": 3}),
        (FolderOptions, {**LABELS, "image_column": "Bild", "label": "Klasse", "split_column": "Teil"}),
        (FolderOptions, {"label_from": "name", "label_separator": " - "}),
        (FolderOptions, {"classes": ("dog", "cat", "Cat")}),
        (FolderOptions, {"split": HALVES, **LABELS, "stratify": True, "split_seed": (1 << 63) - 1}),
        (FolderOptions, {"split": HALVES, "split_seed": -(1 << 63)}),
        (FolderOptions, {"label_separator": "_", **LABELS}),
        (FolderOptions, {"split": split_shares("a=1/3,b=1/3,c=1/3")}),
        (FolderOptions, {"split": split_shares("a=0.1,b=0.2,c=0.7")}),  # floats would sum to 0.9999999999999999
        (TableOptions, {"label": "kind", "split": HALVES, "stratify": True}),
        (VerifyOptions, {"recompute": 1, "images": ("pictures",), "tolerance": 0.0}),
    ],
)
def test_limits_are_allowed(kind, changed):
    parsed = options(kind, **changed)
    assert {name: getattr(parsed, name) for name in changed} == changed


# What the options become


@pytest.mark.parametrize(
    ("changed", "sizing"),
    [
        ({}, ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)),
        ({"shard_size": 7}, ShardSizing(shard_bytes=7)),
        ({"num_shards": 7}, ShardSizing(num_shards=7)),
        ({"layout": "tfds"}, ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)),
        ({"layout": "keras"}, ShardSizing(examples_per_shard=4096)),
        ({"layout": "keras", "examples_per_shard": 7}, ShardSizing(examples_per_shard=7)),
        ({"layout": "keras", "shard_size": 7}, ShardSizing(shard_bytes=7)),
        ({"layout": "keras", "num_shards": 7}, ShardSizing(num_shards=7)),
    ],
)
def test_sizing(changed, sizing):
    assert options(CocoOptions, **changed).sizing == sizing


@pytest.mark.parametrize(
    ("changed", "is_exact"),
    [
        ({}, True),
        ({"gzip": True}, False),
        ({"max_side": 99}, False),
        ({"image_format": "jpeg"}, False),
        ({"image_format": "png"}, False),
    ],
)
def test_has_exact_sizes(changed, is_exact):
    assert options(CocoOptions, **changed).has_exact_sizes == is_exact


def test_sources_of_coco_options():
    files = {
        "instances": ("a.json", "b.json"),
        "keypoints": ("k.json",),
        "captions": ("c.json",),
        "panoptic": ("p.json", "q.json"),
        "panoptic_masks": ("p.zip", "q"),
        "image_info": ("i.json",),
    }
    sources = options(CocoOptions, **files).sources
    assert len(sources) == 7
    assert set(sources) == {
        AnnotationSource(AnnotationKind.INSTANCES, "a.json"),
        AnnotationSource(AnnotationKind.INSTANCES, "b.json"),
        AnnotationSource(AnnotationKind.KEYPOINTS, "k.json"),
        AnnotationSource(AnnotationKind.CAPTIONS, "c.json"),
        AnnotationSource(AnnotationKind.PANOPTIC, "p.json", "p.zip"),
        AnnotationSource(AnnotationKind.PANOPTIC, "q.json", "q"),
        AnnotationSource(AnnotationKind.IMAGE_INFO, "i.json"),
    }
    stuff = options(CocoOptions, instances=(), stuff=("s.json",), bbox_format="xyxy").sources
    assert stuff == (AnnotationSource(AnnotationKind.STUFF, "s.json", bbox_format=BoxFormat.XYXY),)


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({}, ()),
        ({"masks": "png"}, (Part.MASK_PNG,)),
        ({"masks": "rle"}, (Part.MASK_RLE,)),
        ({"masks": "both"}, (Part.MASK_PNG, Part.MASK_RLE)),
        ({"keypoints": ("k.json",), "captions": ("c.json",)}, (Part.KEYPOINTS, Part.CAPTIONS)),
        ({"stuff": ("s.json",)}, (Part.SEMANTIC,)),
        (PANOPTIC, (Part.SEMANTIC, Part.PANOPTIC)),
        ({**PANOPTIC, "layout": "tfds"}, (Part.PANOPTIC,)),
        ({"image_info": ("i.json",), "layout": "keras"}, ()),
    ],
)
def test_record_holds_parts_of_flags(changed, parts):
    parsed = options(CocoOptions, **changed)
    assert parsed.table == LAYOUTS[parsed.layout].with_parts(parts)
    assert parsed.table.parts == parts


def test_config_of_folder():
    plain = options(FolderOptions)
    assert (plain.shares, plain.splits) == (SplitShares(split_shares("train=1"), 0), ("train",))
    assert (plain.class_separator, plain.table) == (None, CLASSIFICATION.with_parts(()))
    assert (plain.image_rules, plain.box_policy) == (ImageRules("decode"), "keep")
    assert options(CocoOptions, boxes="drop").box_policy == "drop"
    columns = {"image_column": "p", "label": "l", "split_column": "s"}
    image_options = {"check": "header", "image_format": "png", "max_side": 9, "jpeg_quality": 80}
    parsed = options(FolderOptions, **LABELS, **columns, **image_options, split=HALVES, split_seed=3)
    assert (parsed.shares, parsed.splits) == (SplitShares(HALVES, 3), ("a", "b"))
    assert parsed.image_rules == ImageRules("header", "png", 9, 80)
    by_name = options(FolderOptions, label_from="name", label_separator="-")
    assert by_name.class_separator == "-"
    assert options(FolderOptions, label_from="name").class_separator == "_"


def test_groups_are_looked_for_in_letters_as_names_have_them():
    given = options(CocoOptions, split=HALVES, group_from="e\u0301")
    assert given.division == Division(SplitShares(HALVES), "\u00e9")


def test_rows_are_known_by_their_image_unless_there_is_key():
    by_image = options(TableOptions, **IMAGE_ROWS)
    assert (by_image.row_key, by_image.required_columns) == ("path", ("path",))
    by_key = options(TableOptions, **IMAGE_ROWS, key="id")
    assert (by_key.row_key, by_key.required_columns) == ("id", ("id",))
    chosen = options(TableOptions, **IMAGE_ROWS, key="id", columns=("a",))
    assert chosen.read_columns == ("a", "id", "path")
    assert [name for name in chosen.read_columns if chosen.writes(name)] == ["a"]
    assert chosen.image_rules == ImageRules("decode")
    assert options(TableOptions, **IMAGE_ROWS, raw_size="24x32").image_rules == ImageRules("decode", raw_size=(24, 32))


def test_rows_of_model_are_table():
    more = {"split": HALVES, "split_seed": 3, "stratify": True, "classes": ("x", "y"), "key": "id"}
    given = options(RowsModelOptions, images=("images",), **more)
    table = given.source
    assert (table.rows, table.images, table.image_column, table.label) == (("t.csv",), ("images",), "path", "kind")
    assert {name: getattr(table, name) for name in more} == more
    assert [name for name in ("id", "path", "kind") if table.writes(name)] == ["kind"]
    assert given.name_sources == NameSources(("images",), ("t.csv",))
    assert "t.csv" in given.paths


def test_files_of_model_are_inputs(tmp_path):
    model, weights = tmp_path / "a.keras", tmp_path / "w"
    model.touch()
    given = options(LabelledModelOptions, model=str(model), weights=str(weights))
    assert given.more_files == (str(model),)
    weights.touch()
    assert given.more_files == (str(model), str(weights))
    assert options(LabelledModelOptions, weights="none").more_files == ()
    assert options(LabelledModelOptions, weights="gs://b/w").more_files == ("gs://b/w",)


@pytest.mark.parametrize(
    ("given", "min_df"), [("1", 1), ("25", 25), ("0.25", 0.25), (".5", 0.5), ("1.0", 1.0), ("1e-3", 0.001)]
)
def test_settings_of_texts(given, min_df):
    """In scikit-learn's terms, 1 is one text and 1.0 are all texts."""
    parsed = options(CocoOptions, **CAPTIONS, text_features=7, min_df=given, ngrams="1, 3", no_lower=True)
    settings = parsed.settings(TextForm.COUNTS, ("the", "on", "the"))
    assert settings == TextSettings(TextForm.COUNTS, (1, 3), False, ("on", "the"), min_df, 7)
    assert type(settings.min_df) is type(min_df)


@pytest.mark.parametrize(
    ("layout", "form", "names", "expected"),
    [
        ("detection", "counts", None, ["captions/index", "captions/value"]),
        ("detection", "tokens", None, ["captions/tokens"]),
        ("tfds", "tfidf", None, ["captions_index", "captions_value"]),
        ("detection", "tfidf", "value=z_value,index=z_index", ["z_index", "z_value"]),
        ("detection", "counts", "index=z_{column}", ["captions/value", "z_captions"]),
        ("tfds", "tokens", "tokens=words", ["words"]),
    ],
)
def test_features_of_texts_have_names_that_were_asked_for(layout, form, names, expected):
    table = options(CocoOptions, captions=("c.json",), layout=layout, caption_text=form, text_names=names).table
    before = {feature.name for feature in LAYOUTS[layout].with_parts(table.parts[:1]).features}
    assert [feature.name for feature in table.features if feature.name not in before] == expected


ENCODERS = ("stop_words", "encoders")
ADDING = {"add", "prune"}
UNRECORDED = {"output", "name", "layout", "workers", "overwrite", "dry_run", "part", "max_rejects", "class_map"}


@pytest.mark.parametrize(
    ("kind", "more_unrecorded"),
    [
        (
            CocoOptions,
            {
                "allow_empty",
                "as",
                "depth_images",
                "data",
                "images",
                "duplicates",
                "exclude",
                "groups",
                "panoptic_masks",
                "stop_words",
                "encoders",
            }
            | {*ANNOTATIONS, *ADDING},
        ),
        (FolderOptions, {"as", "data", "duplicates", "exclude", "groups", "labels", *ADDING}),
        (TableOptions, {"data", "duplicates", "exclude", "images", "schema", "stop_words", "encoders"}),
        (LabelledModelOptions, {"data", "exclude", "groups", "labels", *ADDING}),
        (RowsModelOptions, {"data", "exclude", "images", "schema"}),
    ],
)
def test_options_that_change_no_record(kind, more_unrecorded):
    assert {option.name for option in option_fields(kind) if not option.recorded_as} == UNRECORDED | more_unrecorded


def test_recipe_has_options_not_at_their_defaults():
    given = {
        "split": HALVES,
        "gzip": True,
        "check": "none",
        "classes": ("cat", "dog"),
        "seed": 0,
        "image_format": "keep",
    }
    assert options(FolderOptions, **given).record_options == {
        "split": "a=0.5,b=0.5",
        "gzip": True,
        "check": "none",
        "classes": ["cat", "dog"],
    }


@pytest.mark.parametrize(
    ("kind", "changed", "recorded"),
    [
        (
            FolderOptions,
            {**LABELS, "label": "k", "image_column": "p", "image_format": "png"},
            {"label_column": "k", "path_column": "p", "format": "png"},
        ),
        (TableOptions, {**IMAGE_ROWS, "label": "k"}, {"image_column": "path", "label": "k"}),
        (LabelledModelOptions, {**LABELS, "label": "k", "feature_dtype": "float16"}, {"label_column": "k"}),
        (RowsModelOptions, {"feature_dtype": "float16"}, {"image_column": "path", "label": "kind"}),
    ],
)
def test_recipe_keeps_keys_of_earlier_versions(kind, changed, recorded):
    own = {"model": "m", "dtype": "float16"} if "feature_dtype" in changed else {}
    assert options(kind, **changed).record_options == recorded | own


@pytest.mark.parametrize(
    ("kind", "one", "other", "is_same"),
    [
        (CocoOptions, {}, {"split": split_shares("val=1")}, True),  # the recipe itself has it
        (CocoOptions, {}, {"bbox_format": "xywh"}, True),
        (CocoOptions, {"categories": ("cat", "dog")}, {"categories": ("dog", "cat")}, True),
        (CocoOptions, {"split": HALVES}, {"split": HALVES, "group_from": "x"}, False),
        (FolderOptions, {"split": HALVES}, {"split": HALVES, "group_from": "x"}, False),
        (FolderOptions, {"classes": ("cat", "dog")}, {"classes": ("dog", "cat")}, False),
        (FolderOptions, {"split": HALVES}, {"split": HALVES[::-1]}, False),
        (FolderOptions, {"split": HALVES}, {"split": split_shares("a=0.51,b=0.49")}, False),
        (TableOptions, {"label": "k", "split": HALVES}, {"label": "k", "split": HALVES, "stratify": True}, False),
    ],
)
def test_other_recipes(kind, one, other, is_same):
    assert (options(kind, **one).record_options == options(kind, **other).record_options) == is_same


def test_keys_of_images_that_rows_name_are_none_of_columns():
    rename = {"rename": ("image/width=w", "a=b")}
    given = options(TableOptions, **IMAGE_ROWS, **rename)
    assert given.renamed == {"a": "b"}
    assert "w" in {feature.name for feature in given.table.features}
    assert options(TableOptions, **rename).renamed == {"a": "b", "image/width": "w"}


def test_key_of_optional_input_can_be_renamed():
    given = options(CocoOptions, rename=("image/neg_category_ids=negative",))
    assert "negative" in {feature.name for feature in given.layout_table.features}
