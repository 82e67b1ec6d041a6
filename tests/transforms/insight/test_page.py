import io
import re
from html.parser import HTMLParser

import msgspec
import pytest
from PIL import Image

from recordmill.schemas.dataset.manifest import FORMAT, Manifest, RewrittenImages
from recordmill.schemas.features import FeatureKind, Part
from recordmill.schemas.field_features import FieldColumn, add_fields
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.layouts import DETECTION, requested_fields
from recordmill.schemas.problems import Duplicates, SplitDuplicates
from recordmill.schemas.rejects import RejectLine
from recordmill.schemas.statistics import (
    FINDINGS,
    TEXT_LENGTH,
    Bin,
    ClassDrift,
    ClassInOneSplit,
    ClassStatistics,
    Example,
    FieldStatistics,
    Finding,
    SplitComparison,
    SplitStatistics,
)
from recordmill.transforms.insight.count_images import describe_statistics
from recordmill.transforms.insight.page import (
    _pixel_rows,
    amount_rows,
    check_data,
    order_splits,
    render_page,
    value_rows,
)
from recordmill.transforms.insight.read_examples import Thumbnail, choose_examples
from tests.transforms.insight.drawn_facts import ImageFacts, counted
from tests.transforms.shards.test_describe_split import RECIPE, SPLIT

SCRIPT = "<script>alert(1)</script>"
LONG = "n" * 300
RIGHT_TO_LEFT = "קטגוריה"
REVERSED = "\u202elive\u200d"
HOSTILE = (SCRIPT, LONG, RIGHT_TO_LEFT, '" onload="x', "\x00\x1b[31m", "{{ 7 * 7 }}", REVERSED)


class Page(HTMLParser):
    """Page as a browser reads it: tags with their attributes, and the text outside of the style."""

    def __init__(self, data: bytes):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._raw = ""
        self.feed(data.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw = tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self._raw == "style" else data


def manifest_of(names=("cat", "dog"), counts=(9, 0), splits=("train",), **fields) -> Manifest:
    categories = tuple(Category(number, name) for number, name in enumerate(names, 1))
    entry = msgspec.structs.replace(SPLIT, class_counts=tuple(counts))
    entries = {
        split: msgspec.structs.replace(entry, recipe=msgspec.structs.replace(RECIPE, split=split)) for split in splits
    }
    return Manifest(FORMAT, "coco", "detection", (), categories, (), entries, **fields)


def statistics_of(manifest: Manifest) -> dict[str, SplitStatistics]:
    images = []
    for number in range(8):
        image = str(number), 640 + 100 * number, 480 + 50 * number, "jpeg", 9000 + 5000 * number
        images.append(ImageFacts(*image, ((0.1,), (0.1,), (0.6,), (0.4 + 0.05 * number,)), (0,)))
    counts = manifest.splits["train"].class_counts
    split_statistics = describe_statistics(counted(*images), manifest.labels, manifest.table, counts)
    return dict.fromkeys(manifest.splits, split_statistics)


def thumbnail(name: str) -> Thumbnail:
    file = io.BytesIO()
    Image.new("RGB", (40, 30)).save(file, "JPEG")
    return Thumbnail("sample", "train", file.getvalue(), 40, 30, (name, name), 2)


def with_split(manifest: Manifest, name: str, **changed) -> Manifest:
    entry = msgspec.structs.replace(manifest.splits[name], **changed)
    return msgspec.structs.replace(manifest, splits=manifest.splits | {name: entry})


def page_of(manifest: Manifest, thumbnails=(), statistics=None, duplicates=()) -> Page:
    return Page(render_page(manifest, statistics or statistics_of(manifest), thumbnails, duplicates))


def plain(page: Page) -> str:
    return re.sub(r"\s+", " ", page.text)


def test_names_from_data_are_only_text():
    rejects = tuple(RejectLine("image", "image_missing", name) for name in HOSTILE)
    manifest = with_split(manifest_of(HOSTILE, [9] * len(HOSTILE)), "train", first_rejects=rejects)
    page = page_of(manifest, [thumbnail(name) for name in HOSTILE])
    assert {"script", "iframe", "link", "object", "form"}.isdisjoint(tag for tag, _ in page.tags)
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert page.text.count(SCRIPT) == 4  # class, reject, and two texts of an image
    assert page.text.count(LONG) == 3 + 1
    assert "{{ 7 * 7 }}" in page.text
    assert page.text.count("\\u202elive\u200d") == 3  # else it would be read as evil
    assert not re.search("[\x00-\x08\x0e-\x1f]", page.text)
    isolated = [attributes for tag, attributes in page.tags if tag == "bdi"]
    assert {"dir": "ltr"} in isolated  # a sentence that begins with a right-to-left name
    assert len(isolated) >= 4 * len(HOSTILE) - 3  # so that right-to-left names leave the words around them alone


def test_drifting_classes_are_tables():
    manifest = manifest_of((SCRIPT, "dog"), (9, 0), ("train", "val"))
    statistics = {
        split: msgspec.structs.replace(
            split_statistics,
            images=1000,
            classes=(ClassStatistics(SCRIPT, cats, cats), ClassStatistics("dog", dogs, dogs)),
        )
        for (split, split_statistics), (cats, dogs) in zip(
            statistics_of(manifest).items(), ((90, 500), (0, 250)), strict=True
        )
    }
    page = page_of(manifest, statistics=statistics)
    assert re.search(r"differ between splits: 2\s.*dog\s*val\s*250\s*25.00%\s*50.00%", page.text, re.DOTALL)
    assert "All classes are in all splits" not in page.text
    assert "All classes are in all splits" in page_of(manifest_of(counts=(9, 1))).text


def test_classes_absent_from_a_split_are_a_table():
    names = [SCRIPT, *(f"c{number:02}" for number in range(12)), "in all", "in none"]
    manifest = manifest_of(names, [1076, *range(1, 13), 7, 0], ("test", "train", "val"))
    manifest = with_split(manifest, "test", class_counts=(0,) * 13 + (7, 0))
    manifest = with_split(manifest, "val", class_counts=(0, *range(1, 13), 7, 0))
    page = plain(page_of(manifest))
    assert "Class gaps 1413 absent from a split, 1 unused" in page
    first, _, more = page.split("Classes absent from a split: 13")[1].partition("3 more classes")
    rows = [f"{SCRIPT}val, test1,076", *(f"c{number - 1:02}test{2 * number}" for number in range(12, 3, -1))]
    assert " ".join(rows) in first
    assert re.findall(r"c\d+", more.split("Unused classes")[0]) == ["c02", "c01", "c00"]


def test_nothing_comes_from_elsewhere():
    page = page_of(manifest_of(), thumbnails=[thumbnail("a.jpg")])
    addresses = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert addresses
    assert all(address.startswith(("data:image/jpeg;base64,", "#")) for address in addresses)
    policy = next(attributes for tag, attributes in page.tags if attributes.get("http-equiv"))["content"]
    assert "default-src 'none'" in policy
    anchors = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {address[1:] for address in addresses if address.startswith("#")} <= anchors


def test_alternative_texts():
    page = page_of(manifest_of(), thumbnails=[thumbnail("a.jpg")])
    assert [attributes["alt"] for tag, attributes in page.tags if tag == "img"] == ["a.jpg, 2 objects drawn"]
    charts = [
        attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("class") in ("chart", "map")
    ]
    assert len(charts) >= 8
    assert "Objects per image: always 1 (objects)." in page.text
    assert all(chart["role"] == "img" and chart["aria-label"] for chart in charts)
    tables = [tag for tag, _ in page.tags if tag == "table"]
    assert len(tables) > len(charts)


def test_splits_are_side_by_side():
    rejects = tuple(RejectLine("image", "image_missing", f"no file {number}") for number in range(9))
    text = plain(page_of(with_split(manifest_of(splits=("train", "val")), "train", first_rejects=rejects)))
    assert re.search(r"images\s*8 of 10[^)]*\)\s*8 of 10", text)
    assert "no file 0no file 1no file 2" in text.replace(" no", "no")
    assert "no file 3" not in text
    assert "image_missing" in text
    assert "empty_box" in text


@pytest.mark.parametrize(
    ("most", "text"),
    [
        (100_000, "lists all rejects."),
        (1, "lists 6 of 8 rejects, at most 1 per reason and split."),
    ],
)
def test_page_says_whether_all_rejects_are_listed(monkeypatch, most, text):
    monkeypatch.setattr("recordmill.schemas.dataset.manifest.MOST_LISTED", most)
    monkeypatch.setattr("recordmill.transforms.insight.page.MOST_LISTED", most)
    assert text in plain(page_of(manifest_of(splits=("train", "val"))))


def test_hundreds_of_classes():
    names, counts = [f"class {number:03}" for number in range(400)], list(range(1, 401))
    page = page_of(manifest_of(names, counts))
    places = [page.text.index(name) for name in reversed(names)]
    assert places == sorted(places)
    assert "388 more classes" in page.text
    assert "397 more classes" in page_of(manifest_of(names, [9, 5, 0, 4, *[0] * 396])).text


def test_possible_problems_are_counted_and_shown():
    manifest = manifest_of(splits=("train", "val"))
    statistics = statistics_of(manifest)
    dark, other, thin = (Finding(3, (Example(rank, rank, "s", rank, 0, 9),)) for rank in (1, 2, 3))
    statistics["train"] = msgspec.structs.replace(statistics["train"], findings={"dark": dark}, measured=8)
    statistics["val"] = msgspec.structs.replace(statistics["val"], findings={"dark": other, "thin_boxes": thin})
    chosen = choose_examples(statistics)
    assert [why for why, _, _ in chosen if why in FINDINGS] == ["dark", "dark", "thin_boxes"]
    thumbnails = [thumbnail("night.jpg")._replace(why="dark"), thumbnail("day.jpg")]
    content = plain(page_of(manifest, thumbnails, statistics))
    order = ("Is the data good?", "At random", "day.jpg", "Dark images33", "4 pixels wide or high03", "night.jpg")
    places = [content.index(text) for text in order]
    assert places == sorted(places)
    assert "Pixels were not checked" not in content
    assert "Pixels were not checked" in page_of(manifest_of()).text


def test_values_that_all_splits_have_stand_once_and_none_not():
    of = {
        "train": {"seed": 1, "gzip": True, "match": ["a", "b"], "lists": [], "limit": None, "old": False},
        "val": {"seed": 2, "gzip": True, "match": ["a", "b"], "lists": [], "limit": None},
    }
    assert value_rows(of) == [("gzip", ["yes"]), ("match", ["a, b"]), ("old", ["no", ""]), ("seed", ["1", "2"])]


def test_amounts_of_each_split():
    (shard,) = SPLIT.shards[:1]
    manifest = manifest_of(counts=(9, 2), splits=("train", "val"))
    rewritten = RewrittenImages({"gif": 3, "webp": 1200}, turned=0, shrunk=4, bytes_read=9, bytes_written=8)
    train = msgspec.structs.replace(
        manifest.splits["train"],
        shards=tuple(msgspec.structs.replace(shard, bytes=size) for size in [1000] * 11 + [12_000]),
        class_counts=(9, 0),
        images=msgspec.structs.replace(SPLIT.images, rewritten=rewritten),
    )
    val = msgspec.structs.replace(manifest.splits["val"], shards=(msgspec.structs.replace(shard, bytes=1000),))
    manifest = msgspec.structs.replace(manifest, splits={"train": train, "val": val})
    rows = dict(amount_rows(manifest, {"train": statistics_of(manifest)["train"]}))
    assert rows["objects per image"] == ["1.0", ""]
    assert rows["classes"] == ["1 of 2 used", "2 of 2 used"]
    assert rows["class balance"] == ["1.0 to 1", "4.5 to 1"]
    assert rows["rewritten"] == ["gif 3, webp 1,200; 4 made smaller: 9 bytes became 8 bytes", ""]
    assert rows["formats in records"] == ["jpeg 8", ""]
    assert rows["shards"] == ["12 of 1.0 kB to 12.0 kB, 23.0 kB in total", "1 of 1.0 kB, 1.0 kB in total"]
    assert rows["largest shard"] == ["6.26 times the mean", "1.00 times the mean"]
    assert rows["hosts"] == ["at most 12 (number of shards)", "at most 1 (number of shards)"]
    manifest = msgspec.structs.replace(manifest, splits={"val": val})
    lacking = rows.keys() - dict(amount_rows(manifest, {})).keys()
    assert lacking == {"formats in records", "objects per image", "rewritten"}


def test_check_data():
    manifest = manifest_of(counts=(9, 0), splits=("train", "val"))
    of = {
        "train": SplitDuplicates(3, 1, leaked=2, labels_differ=1, conflicting=1),
        "val": SplitDuplicates(exact=2, leaked=2, conflicting=1),
    }
    manifest = with_split(manifest, "val", findings={"dark": 2, "blurred": 1, "thin_boxes": 4})
    manifest = msgspec.structs.replace(manifest, duplicates=Duplicates("", 3, 1, of, {}, 1))
    statistics = {name: msgspec.structs.replace(split, measured=8) for name, split in statistics_of(manifest).items()}
    manifest = with_split(manifest, "val", class_counts=(0, 2))
    drifts = [ClassDrift("cat", "val", 1, *shares) for shares in ((0.1, 0.2), (0.3, 0.2), (0.0, 0.2), (0.2, 0.0))]
    comparison = SplitComparison((ClassInOneSplit("cat", "train", 9),), tuple(drifts))
    assert [tuple(check) for check in check_data(manifest, statistics, comparison)] == [
        ("Leakage", 4, "images that are also in another split", "duplicates"),
        ("Conflicting labels", 2, "exact copies with different labels, of 1 distinct image", "duplicates"),
        ("Duplicates", 6, "5 exact, 1 near, 1 other labels", "duplicates"),
        ("Rejects", 8, "4 empty_box, 2 image_missing, 2 malformed_image", "rejects"),
        ("Class gaps", 4, "2 absent from a split, 2 different share", "class-gaps"),
        ("Suspicious boxes", 4, "4 thin boxes", "possible-problems"),
        ("Suspicious images", 3, "2 dark, 1 blurred", "possible-problems"),
    ]


def test_check_data_without_a_look():
    """No number is not 0, which would read as clean."""
    checks = check_data(manifest_of(), statistics_of(manifest_of()), SplitComparison())
    unknown = ["Leakage", "Conflicting labels", "Duplicates", "Suspicious images"]
    assert [check.title for check in checks if check.number is None] == unknown


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (dict.fromkeys("abc", "c=0.5,a=0.25,b=0.25"), "cab"),
        ({"val": "val", "train": "", "x": "x", "test": "test"}, ["train", "val", "test", "x"]),
        ({"x": "x", "b": "b=0.5,a=0.5", "a": "b=0.5,a=0.5"}, "bax"),
    ],
)
def test_order_splits(options, order):
    manifest = manifest_of(splits=sorted(options))
    for name, split in options.items():
        recipe = msgspec.structs.replace(RECIPE, split=name, options={"split": split} if split else {})
        manifest = with_split(manifest, name, recipe=recipe)
    assert order_splits(manifest) == list(order)


def test_pixels_of_each_class_and_depths_are_shown():
    segments = (Category(0, "background"), Category(7, "road"), Category(9, "sky"))
    manifest = msgspec.structs.replace(
        manifest_of((), (), splits=("train", "val")),
        parts=(Part.SEMANTIC, Part.DEPTH),
        segments=segments,
        pixel_ids=True,
    )
    train = counted(
        ImageFacts("a", 4, 2, "png", 9, pixels={0: 2, 7: 5, 255: 1}, depth_mm=[0, 500, 1500]),
        ImageFacts("b", 4, 2, "png", 9, pixels={7: 8}, depth_mm=[0, 0, 0]),
    )
    val = counted(ImageFacts("c", 4, 2, "png", 9, pixels={9: 6, 255: 2}, depth_mm=[250]))
    described = {
        split: describe_statistics(statistics, manifest.labels, manifest.table, ())
        for split, statistics in (("train", train), ("val", val))
    }
    rows = _pixel_rows(list(described.values()))
    assert [(row["name"], row["counts"], row["shares"]) for row in rows] == [
        ("road", [13, 0], ["81%", "0%"]),
        ("sky", [0, 6], ["0%", "75%"]),
        ("background", [2, 0], ["12%", "0%"]),
        ("unknown", [1, 2], ["6.2%", "25%"]),
    ]
    depths = dict(amount_rows(manifest, described))["depth"]
    assert depths == ["0.5 to 1.5 m, mean 1 m", "0.25 to 0.25 m, mean 0.25 m"]
    text = Page(render_page(manifest, described)).text
    assert "Classes of semantic masks" in text
    assert "Depth of pixels" in text


def test_fields_have_a_section():
    columns = [FieldColumn("image", path, FeatureKind.BYTES) for path in ("note", SCRIPT)]
    columns += [FieldColumn("object", f"f{number:02}", FeatureKind.FLOAT) for number in range(10)]
    table = add_fields(DETECTION, columns).table
    manifest = manifest_of(splits=("train", "val"), features=table.features)
    assert manifest.table == table
    texts = {text: 3 for text in HOSTILE if len(text) < TEXT_LENGTH}
    numbers = FieldStatistics(3, 1, 2, 0.5, 0.75, (Bin(0.5, 0.5, 1), Bin(0.75, 0.75, 1)))
    fields = {column.source: numbers for column in requested_fields(table) if column.axis == "object"}
    fields |= {column.source: FieldStatistics(30, 2, 28, texts=texts) for column in requested_fields(table)[:2]}
    statistics = {
        split: msgspec.structs.replace(split_statistics, fields=dict([*fields.items()][:10]))
        for split, split_statistics in statistics_of(manifest).items()
    }
    page = page_of(manifest, statistics=statistics)
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(SCRIPT) >= 1
    assert "val: median 0.5, least 0.5, largest 0.75; 1 of 3 missing" in page.text
    assert "2 more fields are not shown." in page.text
    assert ("section", {"aria-labelledby": "fields"}) in page.tags
    assert "fields" not in {attributes.get("id") for _, attributes in page_of(manifest).tags}
