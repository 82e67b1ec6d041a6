import json
import math

import pytest

from recordmill.schemas.errors import AnnotationFileError, CollidingImagesError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationKind
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco import coco_rows
from recordmill.transforms.coco.coco_rows import CocoImageRow
from recordmill.transforms.coco.cut_blocks import cut_blocks
from recordmill.transforms.coco.decode_coco import CocoRows, decode_coco
from tests.transforms.coco.whole_files import IMAGE, OBJECT, document

ROW = OBJECT | {"iscrowd": 1}


def decode(content: object, kind: AnnotationKind = AnnotationKind.INSTANCES) -> CocoRows:
    """The rows of all blocks of a file."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    blocks = [decode_coco("in/a.json", block.list, block.text, kind) for block in cut_blocks("in/a.json", [data])]
    return CocoRows(
        [row for block in blocks for row in block.images],
        [row for block in blocks for row in block.annotations],
        blocks[-1].categories,
        [reject for block in blocks for reject in block.rejected],
        {list_: list_counts for block in blocks for list_, list_counts in block.unread.items()},
        frozenset(name for block in blocks for name in block.fields),
        blocks[-1].has_annotations,
    )


def images(rows: CocoRows) -> list[CocoImageRow]:
    """Without the fields that a file has besides."""
    return [
        CocoImageRow(**{name: getattr(row, name) for name in CocoImageRow.__struct_fields__}) for row in rows.images
    ]


def fault(content: object) -> str:
    with pytest.raises(AnnotationFileError) as caught:
        decode(content)
    return str(caught.value)


@pytest.mark.parametrize("bad_rows", [([], []), ([{"id": 5}], [None])])
def test_rows_are_typed_and_boxes_keep_their_text(bad_rows):
    bad_images, annotations = bad_rows
    rows = decode(document([IMAGE, *bad_images], [*annotations, ROW]))
    assert images(rows) == [CocoImageRow(1, "a.jpg", 40, 30)]
    (row,) = rows.annotations
    assert (row.id, row.image_id, row.category_id, row.area, row.iscrowd) == (7, 1, 3, 12.5, 1)
    assert bytes(row.bbox) == b"[1, 2, 3.5, 4]"
    assert rows.categories == [Category(3, "dog", "animal")]
    assert {(reject.what, reject.id) for reject in rows.rejected} == (
        {("image", 5), ("annotation", None)} if bad_images else set()
    )
    assert len(rows.rejected) == 2 * bool(bad_images)


def decode_text_ids(image_ids: tuple[object, ...], **more: object) -> CocoRows:
    """One image and one object for each id; the first object is of another type in a field."""
    rows = [ROW | {"id": f"o{number}", "image_id": id_} for number, id_ in enumerate(image_ids)]
    content = document([IMAGE | {"id": id_} for id_ in image_ids], [rows[0] | more, *rows[1:]])
    data = json.dumps(content).encode()
    return decode_coco("a.json", "", data, AnnotationKind.INSTANCES, sampled=slice(0, None, 2))


@pytest.mark.parametrize(("area", "bad"), [(12.5, 0), (math.nan, 0), ("x", 1)])
def test_ids_that_are_texts(area, bad):
    digits = "9" * 5000  # int() refuses so many
    rows = decode_text_ids(("0998", "-7", digits, 5, "12.0", "a.jpg"), area=area)
    numbers = [998, -7, name_id(digits), 5, 12, name_id("a.jpg")]
    assert [image.id for image in images(rows)] == numbers
    assert [row.image_id for row in rows.annotations] == numbers[bad:]
    assert [row.id for row in rows.annotations] == [name_id(f"o{number}") for number in range(bad, 6)]
    assert [(reject.id, reject.image_id) for reject in rows.rejected] == [(name_id("o0"), 998)] * bad
    assert rows.id_texts.images == {name_id(text): text for text in (digits, "a.jpg")}
    assert rows.id_texts.annotations == {name_id(f"o{number}"): f"o{number}" for number in range(6)}
    assert [row.image_id for row in rows.sampled] == numbers[::2][bad:]


def test_two_texts_of_one_hash_end_job(monkeypatch):
    monkeypatch.setattr(coco_rows, "name_id", lambda text: 5)
    with pytest.raises(CollidingImagesError, match="the ids 'a' and 'b' have the same hash, 5"):
        decode_text_ids(("a", "b"))


@pytest.mark.parametrize("id_", ["", None, [1], 1.5])
def test_invalid_ids(id_):
    rows = decode_text_ids((3, id_))
    assert [image.id for image in images(rows)] == [3]
    assert [reject.reason for reject in rows.rejected] == [Reason.MALFORMED_IMAGE, Reason.MALFORMED_ANNOTATION]


def test_optional_fields():
    rows = decode(document([{"id": 1, "file_name": ""}], [{"id": 7, "image_id": 1, "category_id": 3, "bbox": 0}], []))
    assert images(rows) == [CocoImageRow(1, "", None, None)]
    (row,) = rows.annotations
    assert (row.area, row.iscrowd) == (None, 0)
    assert decode({"images": []}) == CocoRows([], [], [], [], {}, frozenset(), has_annotations=False)


def test_reject_names_row_and_field():
    (reject,) = decode(document(annotations=[{**ROW, "category_id": "three"}])).rejected
    detail = "annotation row: Expected `int`, got `str` - at `$.category_id`"
    assert reject == Rejected("annotation", 7, Reason.MALFORMED_ANNOTATION, detail, 1)


def test_nan_costs_row_that_needs_number_there_and_no_other():
    images = [{**IMAGE, "score": math.nan}, {**IMAGE, "id": 2, "width": math.inf}, {**IMAGE, "id": 3}]
    rows = decode(document(images, [{**ROW, "score": -math.inf}]))
    assert [row.id for row in rows.images] == [1, 3]
    assert [(reject.what, reject.id) for reject in rows.rejected] == [("image", 2)]
    assert [row.id for row in rows.annotations] == [7]


@pytest.mark.parametrize("name", [math.nan, math.inf, -math.inf])
def test_file_name_no_text_is_malformed_and_not_name(name):
    images = [IMAGE, {**IMAGE, "id": 2, "file_name": name}, {**IMAGE, "id": 3, "file_name": "NaN.jpg"}]
    rows = decode(document(images))
    assert [row.id for row in rows.images] == [1, 3]
    detail = f"the file_name is {json.dumps(name)}, not a string"
    assert rows.rejected == [Rejected("image", 2, Reason.MALFORMED_IMAGE, detail)]
    addressed = [{**IMAGE, "id": 2, "file_name": name, "coco_url": 5}, {**IMAGE, "id": 3, "coco_url": 5}]
    rows = decode(document([IMAGE, *addressed]))
    assert ([row.id for row in rows.images], [reject.id for reject in rows.rejected]) == ([1, 3], [2])
    masks = [{"image_id": 1, "file_name": mask_name, "segments_info": []} for mask_name in (name, "a.png")]
    rows = decode(document([IMAGE], masks), AnnotationKind.PANOPTIC)
    assert [row.file_name for row in rows.annotations] == ["a.png"]
    assert rows.rejected == [Rejected("annotation", None, Reason.MALFORMED_PANOPTIC, detail, 1)]
    assert [row.file_name for row in decode(document([{**IMAGE, "file_name": "NaN"}])).images] == ["NaN"]


@pytest.mark.parametrize("neighbours", [[], [{"id": ["x"]}], [{"id": 3, "coco_url": "http://host/c.jpg"}]])
def test_url_beside_name_is_counted(neighbours):
    addressed = [{**IMAGE, "coco_url": 5}, {**IMAGE, "id": 2, "coco_url": "http://host/b.jpg"}]
    rows = decode(document([*addressed, *neighbours]))
    assert [row.id for row in rows.images][:2] == [1, 2]
    assert [reject.id for reject in rows.rejected] == [None] * (neighbours == [{"id": ["x"]}])
    assert rows.unread == {"images": {"coco_url": 2 + ("coco_url" in str(neighbours))}}


def test_address_no_text_is_no_name():
    (reject,) = decode(document([{"id": 1, "coco_url": 5}])).rejected
    detail = "image row: it has no file_name, and its coco_url is not a string (Expected `str | null`, got `int`)"
    assert reject == Rejected("image", 1, Reason.MALFORMED_IMAGE, detail)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_text_nan_stays_text(word):
    bare = float(word)
    named_images = [{**IMAGE, "id": 3, "file_name": word}, {"id": 4, "coco_url": f"http://host/{word}"}]
    image_rows = [{**IMAGE, "id": 1, "file_name": bare}, {"id": ["x"], "file_name": word}, *named_images]
    captions = [{"id": id_, "image_id": 3, "caption": text} for id_, text in enumerate([word, bare, word])]
    rows = decode(document(image_rows, captions), AnnotationKind.CAPTIONS)
    assert [(row.id, row.file_name) for row in rows.images] == [(3, word), (4, word)]
    assert [(row.id, row.caption) for row in rows.annotations] == [(0, word), (2, word)]
    assert {(reject.what, reject.id) for reject in rows.rejected} == {("image", 1), ("image", None), ("annotation", 1)}
    masks = [{"image_id": id_, "file_name": text, "segments_info": []} for id_, text in enumerate([bare, word])]
    rows = decode(document([IMAGE], masks), AnnotationKind.PANOPTIC)
    assert [row.image_id for row in rows.annotations] == [1]
    categories = [{"id": 1, "name": word}, {"id": 2, "name": "x", "score": bare}]
    assert [category.name for category in decode(document([IMAGE], [], categories)).categories] == [word, "x"]
    assert "category 2 is" in fault(document([IMAGE], [], [{"id": 1, "name": word}, {"id": 2, "name": bare}]))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"images": [}', "line 1, column 13 "),
        ('{"images": [],\n "annotations": [}', "line 2, column 18 "),
        ('{"images": []} and more', "line 1, column 1"),
        ('{\n"images": [{"id": "x", "file_name": "a"}],\n\n  "annotations": oops}', "line 4, column 18 "),
        ("no JSON", "line 1, column 2 "),
        ('{"images": [{"id": 1, "x": NaN}, }', "line 1, column 34 "),
        ('{"images": [\n{"id": 1, "x": -Infinity}, }', "line 2, column 28 "),
        ('{"images": [{"id": 1, "x": NaN},\n }', "line 2, column 2 "),
        ('{"images": [{"id": 1, "NaN": NaN, "x": "Infinity"}, }', "line 1, column 53 "),
    ],
)
def test_malformed_json_is_named_by_file_line_and_column(text, place):
    message = fault(text.encode())
    assert message.startswith("in/a.json is not JSON: ")
    assert place in message
    assert "\n" not in message


def test_file_cut_anywhere_is_named_to_be_no_json():
    whole = json.dumps(document([{**IMAGE, "file_name": "é\u2028\\.jpg"}]), indent=1, ensure_ascii=False)
    data = whole.encode()
    for size in range(1, len(data)):
        message = fault(data[:size])
        assert message.startswith("in/a.json is not JSON: ")
        if data[:size].isascii():
            lines = whole[:size].split("\n")
            assert f"at line {len(lines)}, column {len(lines[-1]) + 1} (byte {size})" in message


@pytest.mark.parametrize("data", [b"", b" \n\n"])
def test_empty_file_is_named_to_be_empty(data):
    assert fault(data).startswith("in/a.json is empty")


def test_byte_order_mark_is_skipped():
    rows = decode(json.dumps(document(annotations=[])).encode("utf-8-sig"))
    assert images(rows) == [CocoImageRow(1, "a.jpg", 40, 30)]


@pytest.mark.parametrize("first", [IMAGE, {"id": "x"}, {**IMAGE, "score": math.nan}])
def test_text_not_utf_8_is_named_by_file(first):
    text = json.dumps(document([first, {**IMAGE, "file_name": "caf\u00e9.jpg"}]), ensure_ascii=False)
    assert fault(text.encode("latin-1")).startswith("in/a.json is not UTF-8")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([IMAGE], "Expected `object`, got `array`"),
        ([], "Expected `object`, got `array`"),
        (None, "Expected `object`, got `null`"),
        ({}, "missing required field `images`"),
        ({"annotations": [ROW]}, "missing required field `images`"),
        ({"images": {"1": IMAGE}}, "`$.images`"),
        ({"images": [], "annotations": None}, "`$.annotations`"),
        (document(categories=[{"id": 1}]), "missing required field `name`"),
        (document(categories=["dog"]), "Expected `object`, got `str`"),
    ],
)
def test_json_not_coco_s_is_named_by_file_and_fault(content, what):
    message = fault(content)
    assert message.startswith("in/a.json is JSON, but not a COCO file: ")
    assert what in message


@pytest.mark.parametrize(
    ("more", "valid_fields"),
    [
        ({"supercategory": 0, "keypoints": ["nose"], "isthing": 1}, {"keypoints": ("nose",), "isthing": 1}),
        ({"skeleton": None, "keypoints": ["nose"]}, {"keypoints": ("nose",)}),
        ({"keypoints": [1], "skeleton": [[1, 2]], "supercategory": "x"}, {"skeleton": ((1, 2),), "supercategory": "x"}),
    ],
)
def test_odd_field_of_category_costs_that_field(more, valid_fields):
    (category,) = decode(document(categories=[{"id": 3, "name": "dog", **more}])).categories
    assert category == Category(3, "dog", **valid_fields)


DEEP = "[" * 100_000 + "]" * 100_000


def test_category_named_nan():
    text = '{"images": [], "annotations": [], "categories": [{"id": 7, "name": %s, "score": NaN}]}'
    assert fault((text % "NaN").encode()) == "in/a.json: the name of category 7 is NaN, not a string"
    assert [category.name for category in decode((text % '"NaN"').encode()).categories] == ["NaN"]


@pytest.mark.parametrize("score", ["1", "NaN", '"\\ud800"'])
@pytest.mark.parametrize(
    "row", ['{"id": 1, "score": %s, "x": %s}', '{"id": 1, "file_name": "a", "score": %s, "x": %s}']
)
def test_deep_nesting_is_named(score, row):
    assert "nests lists or objects too deeply" in fault(f'{{"images": [{row % (score, DEEP)}]}}'.encode())


@pytest.mark.parametrize("name", ["images", "annotations", "categories"])
@pytest.mark.parametrize("odd", [{}, {"id": "1"}, {"score": math.nan}])
def test_list_there_twice_is_refused(name, odd):
    lists = document([{**IMAGE, **odd}])
    for first in (name, name.title()), (name.title(), name):
        text = json.dumps({**lists, "Images": [], "Annotations": [], "Categories": []})
        other = (
            text.replace(f'"{first[0]}"', '"kept"')
            .replace(f'"{first[1]}"', f'"{name}" ')
            .replace('"kept"', f'"{name}"')
        )
        assert f"in/a.json has two lists {name!r}" in fault(other.encode())


@pytest.mark.parametrize("odd", [{}, {"id": "1"}])
def test_name_of_list_may_be_within(odd):
    words = ["images", "annotations", "categories"]
    within = dict.fromkeys(words, 1)
    plain = document([{**IMAGE, **odd}], [ROW, {**ROW, "id": 8}])
    more = {"info": [within, words], "type": "images", **plain, "more": within}
    more["annotations"] = [{**row, **within} for row in more["annotations"]]
    assert decode(more).annotations[1].id == decode(plain).annotations[1].id


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"<annotation><object/></annotation>", "Pascal VOC's XML"),
        ({"shapes": [], "imagePath": "a.jpg"}, "LabelMe's JSON"),
        (b'{"shapes": [NaN], "imagePath": "a.jpg"}', "LabelMe's JSON"),
        ([{"image_id": 1, "caption": "x"}], "a list of COCO's annotations or results"),
    ],
)
def test_files_of_other_tools_are_named(content, what):
    assert fault(content).startswith(f"in/a.json is {what}")


def test_half_character_costs_that_character():
    """Half a surrogate pair, as Python's json writes it, is replaced; the escapes around it stay."""
    text = json.dumps("a\ud800b \\ud800 \U0001f600 \udc00")
    file = json.dumps(document(images=[{"id": 1, "file_name": "NAME"}])).replace('"NAME"', text)
    rows = decode(file.encode())
    assert rows.images[0].file_name == "a\ufffdb \\ud800 \U0001f600 \ufffd"
