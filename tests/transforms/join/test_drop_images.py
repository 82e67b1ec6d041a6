import gzip
import itertools
import json

import pytest

from recordmill.schemas.block import join_blocks
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.images import ImageRef, ImageTask
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.join.drop_images import (
    Candidate,
    Exclusions,
    exclude_images,
    find_copies,
    labels_digest,
    read_exclusions,
    unmatched_warning,
)
from tests.oracles.block_of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import SplitReject, listed

SPLITS = ("train", "val")


def image(id_: int, name: str, split: str = "train", objects: tuple[int, ...] = (), captions: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 9.0, 9.0), 81.0, False) for number in objects)
    labels = ImageLabels(tuple(Caption(number, "a") for number in range(captions)))
    return ImageTask(id_, name, 10, 10, ImageRef(f"images/{name}", 1), split, annotations, labels)


IMAGES = [
    image(1, "a.jpg", objects=(10, 11), captions=1),
    image(2, "b/é.jpg", objects=(12, 13)),
    image(3, "4", "val", objects=(10,)),
    image(4, "c.jpg", "val"),
]


@pytest.fixture
def read(tmp_path):
    def run(*lines: object, kinds: tuple[str, ...] = (), packed: bool = False) -> Exclusions:
        path = tmp_path / "list"
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        return read_exclusions([str(path)], kinds)

    return run


def problem(name: str, kind: str, id_: int | None = None, split: str = "train") -> dict:
    what = {"what": "annotation", "id": id_} if id_ else {"what": "image"}
    return {"split": split, "file_name": name, "kind": kind, "score": 0.5, **what}


LISTS = [
    (["a.jpg"], [1], {}),
    (["", "./b//e\u0301.jpg  ", ""], [2], {}),
    (["4", "9" * 5000], [3, 4], {}),  # a file name and an id, and what int() refuses
    (
        [problem("a.jpg", "dark"), problem("4", "dark", split="train")],
        [1],
        {},
    ),  # of a split of the job, that split's only
    ([problem("4", "dark", split="all")], [3], {}),
    ([problem("a.jpg", "thin_boxes", 10), problem("b/é.jpg", "thin_boxes", 10)], [], {1: [10]}),
    ([problem("a.jpg", "thin_boxes", 11), problem("a.jpg", "dark")], [1], {}),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("lines", "images", "objects"), LISTS)
def test_exclude_images(read, lines, images, objects, packed):
    kept = exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, read(*lines, packed=packed))
    kept.block.check()
    left = image_tasks(kept.block, SPLITS)
    assert {task.image_id for task in left} == {1, 2, 3, 4} - set(images)
    for task in left:
        given = {each.id for each in IMAGES[task.image_id - 1].annotations}
        assert {each.id for each in task.annotations} == given - set(objects.get(task.image_id, ()))
    rejects = [each.reject for each in listed(kept.facts.build())]
    of_images = sorted(each.id for each in rejects if each.what == "image")
    of_objects = [(each.image_id, each.id) for each in rejects if each.what == "annotation"]
    assert (of_images, of_objects) == (images, [(id_, each) for id_ in objects for each in objects[id_]])


def test_string_id_excludes_image(read):
    kept = exclude_images(
        block_of_tasks([image(name_id("scan 7"), "a.jpg"), *IMAGES[1:]], SPLITS), SPLITS, read("scan 7")
    )
    assert kept.block.image_id.tolist() == [2, 3, 4]


def test_rejects_of_what_is_excluded(read):
    exclusions = read(problem("a.jpg", "dark"), problem("a.jpg", "blurred"), problem("b/é.jpg", "thin_boxes", 13))
    facts = exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, exclusions).facts.build()
    image = Rejected("image", 1, Reason.EXCLUDED, "'a.jpg': --exclude names it (blurred, dark)", None, 3)
    object_ = Rejected("annotation", 13, Reason.EXCLUDED, "'b/é.jpg': --exclude names it (thin_boxes)", 2)
    assert set(listed(facts)) == {SplitReject("train", image), SplitReject("train", object_)}


@pytest.mark.parametrize(("lines", "images", "objects"), LISTS)
def test_blocks_may_be_cut_anywhere(read, lines, images, objects):
    exclusions, whole = read(*lines), block_of_tasks(IMAGES, SPLITS)
    expected = exclude_images(whole, SPLITS, exclusions)
    for cut in range(1, len(whole)):
        parts = [exclude_images(part, SPLITS, exclusions) for part in (whole.cut(0, cut), whole.cut(cut, len(whole)))]
        joined = join_blocks([part.block for part in parts])
        assert image_tasks(joined, SPLITS) == image_tasks(expected.block, SPLITS)
        assert {entry for part in parts for entry in part.found} == set(expected.found)
        assert sum(len(listed(part.facts.build())) for part in parts) == len(listed(expected.facts.build()))


def test_kinds_are_chosen(read):
    lines = problem("a.jpg", "dark"), problem("b/é.jpg", "blurred"), "c.jpg"
    assert set(read(*lines, kinds=("blurred",)).by_name) == {"b/é.jpg", "c.jpg"}


def test_entries_that_name_nothing(read):
    exclusions = read("a.jpg", "gone.jpg", problem("a.jpg", "thin_boxes", 99))
    found = exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, exclusions).found
    text = unmatched_warning(exclusions, found)
    assert text.startswith(
        "--exclude: 2 of 3 lines name nothing that is converted ('gone.jpg', 'annotation 99 of a.jpg')"
    )
    assert unmatched_warning(exclusions, [0, 1, 2]) == ""
    with pytest.raises(ConfigError, match=r"no line names anything that is converted \('a\.jpg'"):
        unmatched_warning(exclusions, [])


def test_empty_list_of_problems_excludes_nothing(tmp_path):
    (tmp_path / "problems-val.jsonl").touch()
    exclusions = read_exclusions([str(tmp_path / "problems-val.jsonl")])
    assert (exclusions.lines, unmatched_warning(exclusions, [])) == ([], "")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([""], "has no line. Leave it out"),
        (["a.jpg", {"images": []}], "line 2 names no image"),
        ([{"file_name": 7}], "line 1 names no image"),
        ([{"file_name": "a", "what": "annotation"}], "line 1 is about an annotation, with id None"),
        ([problem("a", "thin_boxes", 1 << 63)], "line 1 names no image"),
        (["{"], "line 1 names no image"),
    ],
)
def test_what_is_no_list_is_refused(read, lines, reason):
    with pytest.raises(ConfigError, match=reason):
        read(*lines)


# Copies


@pytest.mark.parametrize(
    ("images", "dropped"),
    [
        ([("train", "a", 1, "x")], {}),
        ([("train", "a", 1, "x"), ("val", "z", 2, "x")], {("train", 1): "'z' of val, which is kept"}),
        (
            [("val", "b", 1, "x"), ("val", "a", 2, "x"), ("train", "a", 3, "y")],
            {("val", 1): "'a' of val, which is kept", ("train", 3): "'a' of val, which is kept, with other labels"},
        ),
        ([("val", "a", 2, "x"), ("val", "a", 1, "x")], {("val", 2): "'a' of val, which is kept"}),  # of one file
    ],
)
def test_find_copies_in_any_order(images, dropped):
    candidates = [Candidate(split, name, id_, f"i/{name}", labels.encode()) for split, name, id_, labels in images]
    for order in itertools.permutations(candidates):
        found = {key: text.removeprefix("the same bytes as ") for key, text in find_copies(order)}
        assert {key[:2]: text for key, text in found.items()} == dropped
        assert {(key[1], key[2]) for key in found} <= {(each.image_id, each.path) for each in candidates}


def test_rows_of_one_file_are_no_copies():
    rows = [Candidate("train", name, 1, f"i/{name}", b"", True) for name in ("a", "a", "b")]  # all of one --key
    for order in itertools.permutations(rows):
        assert dict(find_copies(order)) == {("train", 1, "i/b"): "the same bytes as 'a' of train, which is kept"}


def digest(*objects: tuple[int, float]) -> bytes:
    annotations = tuple(
        Annotation(id_, category, (x, 0.0, 9.0, 9.0), 81.0, False) for id_, (category, x) in enumerate(objects)
    )
    return labels_digest(block_of_tasks([ImageTask(1, "a", 1, 1, ImageRef("a", 1), "train", annotations)], ("train",)))


def test_labels_are_equal_in_any_order():
    assert digest((1, 2.0), (2, 3.0)) == digest((2, 3.0), (1, 2.0))
    assert len({digest(), digest((1, 2.0)), digest((2, 2.0)), digest((1, 3.0)), digest((1, 2.0), (1, 2.0))}) == 5
