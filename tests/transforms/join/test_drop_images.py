import gzip
import itertools
import json

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.block import Block, join_blocks, ragged_bytes, ragged_texts
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Caption, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join import drop_images
from recordmill.transforms.join.drop_images import (
    Candidate,
    DropCopies,
    Exclusions,
    exclude_images,
    find_copies,
    labels_digest,
    read_exclusions,
    unmatched_warning,
)
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import SplitReject, applied, listed

SPLITS = ("train", "val")


def image(id_: int, name: str, split: str = "train", objects: tuple[int, ...] = (), captions: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 9.0, 9.0), 81.0, False) for number in objects)
    labels = ImageLabels(tuple(Caption(number, "a") for number in range(captions)))
    return ImageTask(id_, name, 10, 10, ImageFile(f"images/{name}", 1), split, annotations, labels)


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
    facts = FactsBuilder()
    block, _ = exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, read(*lines, packed=packed), facts)
    block.check("test")
    left = image_tasks(block, SPLITS)
    assert {task.image_id for task in left} == {1, 2, 3, 4} - set(images)
    for task in left:
        ids = {object_.id for object_ in IMAGES[task.image_id - 1].annotations}
        assert {object_.id for object_ in task.annotations} == ids - set(objects.get(task.image_id, ()))
    rejects = [row.reject for row in listed(facts.build())]
    image_ids = sorted(reject.id for reject in rejects if reject.what == "image")
    object_ids = [(reject.image_id, reject.id) for reject in rejects if reject.what == "annotation"]
    assert (image_ids, object_ids) == (images, [(id_, number) for id_ in objects for number in objects[id_]])


def test_string_id_excludes_image(read):
    images = block_of_tasks([image(name_id("scan 7"), "a.jpg"), *IMAGES[1:]], SPLITS)
    block, _ = exclude_images(images, SPLITS, read("scan 7"), FactsBuilder())
    assert block.image_id.tolist() == [2, 3, 4]


def test_rejects_of_excluded_images(read):
    lines = problem("a.jpg", "dark"), problem("a.jpg", "blurred"), problem("a.jpg", "thin_boxes", 11)
    exclusions = read(*lines, problem("b/é.jpg", "thin_boxes", 13))
    facts = FactsBuilder()
    exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, exclusions, facts)
    image = Rejected("image", 1, Reason.EXCLUDED, "'a.jpg': --exclude names it (blurred, dark)", None, 3, "a.jpg")
    object_ = Rejected("annotation", 13, Reason.EXCLUDED, "'b/é.jpg': --exclude names it (thin_boxes)", 2).named(
        "b/é.jpg"
    )
    assert set(listed(facts.build())) == {SplitReject("train", image), SplitReject("train", object_)}


@pytest.mark.parametrize(("lines", "images", "objects"), LISTS)
def test_blocks_may_be_cut_anywhere(read, lines, images, objects):
    exclusions, whole = read(*lines), block_of_tasks(IMAGES, SPLITS)
    all_facts = FactsBuilder()
    expected, entries = exclude_images(whole, SPLITS, exclusions, all_facts)
    for cut in range(1, len(whole)):
        facts = FactsBuilder()
        cuts = whole.cut(0, cut), whole.cut(cut, len(whole))
        parts, entries_of_parts = zip(*(exclude_images(part, SPLITS, exclusions, facts) for part in cuts), strict=True)
        assert image_tasks(join_blocks(parts), SPLITS) == image_tasks(expected, SPLITS)
        assert {entry for part in entries_of_parts for entry in part} == set(entries)
        assert len(listed(facts.build())) == len(listed(all_facts.build()))


def test_kinds_are_chosen(read):
    lines = problem("a.jpg", "dark"), problem("b/é.jpg", "blurred"), "c.jpg"
    assert [line.file_name for line in read(*lines, kinds=("blurred",)).lines] == ["b/é.jpg", "c.jpg"]


def test_entries_that_name_nothing(read):
    exclusions = read("a.jpg", "gone.jpg", problem("a.jpg", "thin_boxes", 99))
    _, matched = exclude_images(block_of_tasks(IMAGES, SPLITS), SPLITS, exclusions, FactsBuilder())
    text = unmatched_warning(exclusions, matched)
    assert text.startswith(
        "--exclude: 2 of 3 lines do not name an image or annotation of this job ('gone.jpg', 'annotation 99 of a.jpg')"
    )
    assert unmatched_warning(exclusions, [0, 1, 2]) == ""
    with pytest.raises(ConfigError, match=r"no line names an image or annotation of this job \('a\.jpg'"):
        unmatched_warning(exclusions, [])


def test_empty_list_of_problems_excludes_nothing(tmp_path):
    (tmp_path / "problems-val.jsonl").touch()
    exclusions = read_exclusions([str(tmp_path / "problems-val.jsonl")])
    assert (exclusions.lines, unmatched_warning(exclusions, [])) == ([], "")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([""], "has no lines. Leave it out"),
        (["a.jpg", {"images": []}], "line 2 does not name an image"),
        ([{"file_name": 7}], "line 1 does not name an image"),
        ([{"file_name": "a", "what": "annotation"}], "line 1 is about an annotation, with id None"),
        ([problem("a", "thin_boxes", 1 << 63)], "line 1 does not name an image"),
        (["{"], "line 1 does not name an image"),
    ],
)
def test_not_a_list_is_refused(read, lines, reason):
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
        copies = {key: text.removeprefix("the same bytes as ") for key, text in find_copies(order)}
        assert {key[:2]: text for key, text in copies.items()} == dropped
        assert {(key[1], key[2]) for key in copies} <= {(image.image_id, image.path) for image in candidates}


@pytest.mark.parametrize("places", [("i/a", -1, "i/a", -1, "i/b", -1), ("i", 0, "i", 0, "i", 9)])
def test_rows_of_one_image_are_no_copies(places):
    path, offset = places[::2], places[1::2]
    rows = [
        Candidate("train", name, 1, path[row], b"", True, offset[row])  # all of one --key
        for row, name in enumerate(("a", "a", "b"))
    ]
    for order in itertools.permutations(rows):
        dropped = {("train", 1, path[2], offset[2]): "the same bytes as 'a' of train, which is kept"}
        assert dict(find_copies(order)) == dropped


def test_copies_without_a_file_and_within_one(tmp_path):
    """Images that come as bytes, and images of one file: those of equal size are compared by their own bytes."""
    (tmp_path / "several").write_bytes(b"oneabcabctwo")
    held = Block(image_data=ragged_bytes([b"abc", b"xyz", b"abc"]), file_folder=ragged_texts([""] * 3))
    sliced = Block(
        file_offset=np.array([0, 3, 6, 9]),
        image_data=ragged_bytes([b""] * 4),
        file_folder=ragged_texts([str(tmp_path / "several")] * 4),
    )
    block = join_blocks([held.replace(file_offset=np.full(3, -1)), sliced])
    block = block.replace(
        image_id=np.arange(7),
        file_name=ragged_texts([f"{name}.jpg" for name in "abcdefg"]),
        image_size_px=np.zeros((7, 2), np.int64),
        split=np.zeros(7, np.int64),
        file_bytes=np.full(7, 3),
        file_version=ragged_texts([""] * 7),
    )
    with Pipeline() as p:
        blocks, _ = applied(p | beam.Create([(0, pack_block(block))]), DropCopies(["train"]))
        names = blocks | beam.Map(lambda keyed: unpack_block(keyed[1]).file_name.texts())
        assert_that(names, equal_to([["a.jpg", "b.jpg", "d.jpg", "g.jpg"]]))


def test_content_is_read_where_size_and_ends_are_equal(tmp_path, monkeypatch):
    ends = b"x" * drop_images.END_BYTES
    contents = {
        "a": ends + b"12" + ends,
        "b": ends + b"12" + ends,
        "c": ends + b"3" + ends,
        "d": b"y" + ends + b"2" + ends,
    }
    contents |= {"e": ends + b"21" + ends, "f": b"small", "g": b"small", "h": b"SMALL"}
    paths = []
    fetch = drop_images.fetch_file
    monkeypatch.setattr(drop_images, "fetch_file", lambda ref: paths.append(ref.path[-1]) or fetch(ref))
    tasks = []
    for number, (name, data) in enumerate(contents.items()):
        (tmp_path / name).write_bytes(data)
        tasks.append(ImageTask(number, name, 10, 10, ImageFile(str(tmp_path / name), len(data)), "train", ()))
    with Pipeline() as p:
        packed = pack_block(block_of_tasks(tasks, SPLITS))
        blocks, _ = applied(p | beam.Create([(0, packed)]), DropCopies(SPLITS))
        names = blocks | beam.Map(lambda keyed: unpack_block(keyed[1]).file_name.texts())
        assert_that(names, equal_to([["a", "c", "d", "e", "f", "h"]]))
    assert sorted(paths) == ["a", "b", "e", "f", "g"]


def digest(*objects: tuple[int, float]) -> bytes:
    annotations = tuple(
        Annotation(id_, category, (x, 0.0, 9.0, 9.0), 81.0, False) for id_, (category, x) in enumerate(objects)
    )
    return labels_digest(block_of_tasks([ImageTask(1, "a", 1, 1, ImageFile("a", 1), "train", annotations)], ("train",)))


def test_labels_are_equal_in_any_order():
    assert digest((1, 2.0), (2, 3.0)) == digest((2, 3.0), (1, 2.0))
    assert len({digest(), digest((1, 2.0)), digest((2, 2.0)), digest((1, 3.0)), digest((1, 2.0), (1, 2.0))}) == 5
