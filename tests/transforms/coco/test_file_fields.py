import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.inputs.coco import AnnotationKind, FieldRows
from recordmill.transforms.coco.coco_rows import AnnotationRow, CocoImageRow
from recordmill.transforms.coco.decode_coco import decode_coco
from recordmill.transforms.coco.file_fields import decode_with_fields, has_data
from tests.transforms.coco.whole_files import CATEGORY, IMAGE
from tests.transforms.coco.whole_files import OBJECT as ROW


def unread(document: object, kind: AnnotationKind = AnnotationKind.INSTANCES, masks: bool = False) -> FieldRows:
    return decode_coco("a.json", "", json.dumps(document).encode(), kind, masks).unread


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
EMPTY = st.recursive(
    st.sampled_from([None, False, 0, 0.0, -0.0, ""]), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


def says_something(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(says_something, value.values() if isinstance(value, dict) else value))
    return bool(value)


@given(JSON | EMPTY, st.sampled_from([None, 2]))
def test_data_is_not_empty_null_false_or_zero(value, indent):
    for is_ascii in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode(errors="surrogatepass")
        assert has_data(msgspec.Raw(text)) == says_something(value)


def test_keys_empty_take_no_longer_than_others():
    assert has_data(msgspec.Raw(b"{%b}" % b",".join([b'"": 0'] * 60 + [b'"": 1'])))


@pytest.mark.parametrize("number", [0, 7, 19])
def test_fields_of_some_rows(number):
    rows = [{**ROW, "id": id_} for id_ in range(20)]
    rows[number] |= {"score": 1, "track": 2}
    data = json.dumps({"images": [IMAGE], "annotations": rows, "videos": [1]}).encode()
    file = decode_with_fields(data, CocoImageRow, AnnotationRow)
    assert {name: count for of in file.counts for name, count in of.items() if count} == {
        "score": 1,
        "track": 1,
        "videos": 1,
    }


@pytest.mark.parametrize("where", ["first", "last", "middle", "all", "none"])
@pytest.mark.parametrize("bad", [{}, {"id": "7"}, {"id": None}])
@pytest.mark.parametrize("order", [1, -1])
def test_every_row_with_data_is_counted_wherever_it_stands(where, bad, order):
    rows = [{**ROW, "id": id_} for id_ in range(9)]
    chosen = {"first": [0], "last": [8], "middle": [4], "all": list(range(9)), "none": []}[where]
    for index in chosen:
        rows[index] = {**rows[index], "score": 0.5, "track id": [0, {"a": 1}], "empty": [[]]}
    rows[2] |= bad
    images = [{**IMAGE, "id": id_} for id_ in range(5)]
    images[3] |= {"lens": "wide"}
    lists = {"images": images, "annotations": rows, "categories": [CATEGORY, {**CATEGORY, "id": 4, "synset": "x"}]}
    document = {"info": {"year": 2017}, "licenses": [], **dict(list(lists.items())[::order]), "videos": [1, 2]}
    assert unread(document) == {
        "file": {"info": 1, "videos": 1},
        "images": {"lens": 1},
        **({"annotations": {"score": len(chosen), "track id": len(chosen)}} if chosen else {}),
        "categories": {"synset": 1},
    }


def test_counts_of_unread_fields():
    rows = [{**ROW, "id": id_, f"field {id_}": 1, 'a "name"': 2, "é\n": 3} for id_ in range(100)]
    counted = unread({"images": [IMAGE], "annotations": rows})["annotations"]
    assert counted == {**{f"field {id_}": 1 for id_ in range(100)}, 'a "name"': 100, "é\n": 100}
    assert list(counted) == sorted(counted)


@pytest.mark.parametrize("with_bad_row", [False, True])
@pytest.mark.parametrize(
    ("kind", "masks", "expected"),
    [
        (AnnotationKind.INSTANCES, False, "caption keypoints num_keypoints segmentation segments_info"),
        (AnnotationKind.INSTANCES, True, "caption keypoints num_keypoints segments_info"),
        (AnnotationKind.KEYPOINTS, False, "caption segmentation segments_info"),
        (AnnotationKind.KEYPOINTS, True, "caption segments_info"),
        (AnnotationKind.CAPTIONS, False, "area bbox category_id keypoints num_keypoints segmentation segments_info"),
        (AnnotationKind.STUFF, False, "area bbox caption keypoints num_keypoints segments_info"),
        (AnnotationKind.PANOPTIC, False, "area bbox caption category_id id keypoints num_keypoints segmentation"),
    ],
)
def test_fields_that_kind_does_not_read(kind, masks, expected, with_bad_row):
    row = {
        **ROW,
        "segmentation": [[1, 2, 3, 4, 5, 6]],
        "keypoints": [1, 2, 2],
        "num_keypoints": 1,
        "caption": "a dog",
        "file_name": "a.png" if kind is AnnotationKind.PANOPTIC else "",
        "segments_info": [{"id": 1, "category_id": 3}],
    }
    counted = unread({"images": [IMAGE], "annotations": [row] * 2 + [5] * with_bad_row}, kind, masks)
    assert counted == {"annotations": dict.fromkeys(expected.split(), 2)}


@pytest.mark.parametrize("bad", [[], [5], [{"segments_info": 5}], [{"segments_info": [7]}]])
def test_fields_of_segments_are_counted_wherever_they_stand(bad):
    segment = {"id": 1, "category_id": 3, "iscrowd": 0, "bbox": [1, 2, 3, 4], "area": 12}
    more = segment | {"score": 0.5, "tags": ["a"], "empty": []}
    rows = [
        {"image_id": 1, "file_name": "a.png", "segments_info": segments}
        for segments in ([segment], [more, segment], [more])
    ]
    document = {"images": [IMAGE], "annotations": [*rows, *bad], "categories": [CATEGORY]}
    counted = unread(document, AnnotationKind.PANOPTIC)["annotations"]
    assert counted == {"segments_info.score": 2, "segments_info.tags": 2}
    assert list(counted) == sorted(counted)
    document["annotations"] = [rows[0], *bad]
    assert unread(document, AnnotationKind.PANOPTIC) == {}


@pytest.mark.parametrize("with_bad_row", [False, True])
def test_address_that_gave_name_is_not_carried_whole(with_bad_row):
    images = [{"id": 1, "coco_url": "http://x/a.jpg"}, {"id": 2, "coco_url": "http://x/b.jpg", "file_name": "b"}]
    bad = [5, {"id": "x", "coco_url": "http://x/c.jpg"}] if with_bad_row else []
    assert unread({"images": images + bad, "annotations": []}) == {"images": {"coco_url": 2 + with_bad_row}}
