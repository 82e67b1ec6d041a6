"""Several sets become one: ids, names, classes, splits and copies."""

import pickle
import random
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.block import ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Category
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import hash_images
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.shape import join_sets
from recordmill.transforms.shape.join_sets import DataSetPart, JoinSets, name_images, renumber_block
from recordmill.transforms.shape.map_classes import ClassMapping
from recordmill.transforms.user_samples.record_options import RecordOptions
from tests.beam_pipeline import Pipeline
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.dataset.kinds import applied, listed

SPLITS = ("train", "val")
TABLE = LAYOUTS["detection"].with_parts(())
BOX = (1.0, 2.0, 3.0, 4.0)


def image(id_: int, name: str, split: str = "train", objects: dict[int, int] | None = None, size: int = 0) -> ImageTask:
    """An image whose objects have these category ids, by annotation id."""
    annotations = tuple(Annotation(number, class_id, BOX, 12.0, False) for number, class_id in (objects or {}).items())
    return ImageTask(id_, name, 40, 30, ImageFile(f"/data/{name}", size or id_ + 1), split, annotations)


def keyed_blocks(tasks: list[ImageTask], splits: tuple[str, ...], per_block: int = 3) -> list[tuple[int, bytes]]:
    parts = [tasks[start : start + per_block] for start in range(0, len(tasks), per_block)]
    return [(key, pack_block(block_of_tasks(part, splits))) for key, part in enumerate(parts)]


def join(p, sets: dict[str, tuple[LabelMap, list[ImageTask]]], seed: int = 0, shuffled: int | None = None, **options):
    """Blocks, labels and Facts of sets whose Blocks arrive in an order of chance."""
    parts = []
    for name, (labels, tasks) in sets.items():
        own_splits = tuple(sorted({task.split for task in tasks}, reverse=True)) or ("train",)
        blocks = keyed_blocks(tasks, own_splits)
        random.Random(shuffled).shuffle(blocks)
        labels_, table = p | f"L{name}" >> beam.Create([labels]), p | f"T{name}" >> beam.Create([TABLE])
        parts.append(DataSetPart(name, p | f"B{name}" >> beam.Create(blocks), labels_, table, own_splits))
    transform = JoinSets(parts, SPLITS, RecordOptions(output="out", seed=seed), **options)
    (blocks, labels, _), facts = applied(tuple(part.blocks for part in parts), transform)
    return blocks, labels, facts


def tasks_of(keyed: tuple[int, bytes]) -> list[ImageTask]:
    return image_tasks(unpack_block(keyed[1]), SPLITS)


def named(*pairs: tuple[int, str]) -> LabelMap:
    return LabelMap(tuple(Category(*pair) for pair in pairs))


def shuffled_set(seed: int, names: list[str], images: int = 7) -> tuple[LabelMap, list[ImageTask]]:
    """A set whose ids of images, annotations and classes are numbers from 0 on, in an order of chance."""
    rng = random.Random(seed)
    image_ids, object_ids = (rng.sample(range(number), number) for number in (images, 2 * images))
    labels = named(*enumerate(rng.sample(names, len(names))))
    tasks = []
    for number, id_ in enumerate(image_ids):
        objects = {object_ids[2 * number + k]: rng.randrange(len(names)) for k in range(2)}
        tasks.append(image(id_, f"{number}.jpg", rng.choice(SPLITS), objects))
    return labels, tasks


SETS = {name: shuffled_set(seed, classes) for seed, (name, classes) in enumerate(
    {"a": ["cow", "eel"], "b": ["eel", "ant", "cow"], "c": ["ape", "ant"]}.items()
)}  # fmt: skip


def merged_by_hand() -> dict[str, tuple]:
    """Id, split, and id, class and box of each object, by file name."""
    images: dict[str, tuple] = {}
    image_ids, object_ids = set[int](), set[int]()
    for name, (labels, tasks) in SETS.items():
        names = {category.id: category.name for category in labels.categories}
        earlier_images, earlier_objects = set(image_ids), set(object_ids)
        for task in tasks:
            file_name = f"{name}/{task.file_name}"
            id_ = name_id(file_name) if task.image_id in earlier_images else task.image_id
            objects = {
                (
                    name_id(f"{file_name} annotation {one.id}") if one.id in earlier_objects else one.id,
                    names[one.category_id],
                    one.bbox_xywh_px,
                )
                for one in task.annotations
            }
            images[file_name] = id_, task.split, task.ref.path, objects
            image_ids.add(task.image_id)
            object_ids |= {one.id for one in task.annotations}
    return images


@pytest.mark.parametrize("seed", [0, 1])
def test_every_object_has_its_class_and_box(seed):
    def check(found):
        (labels,) = (one for one in found if isinstance(one, LabelMap))
        names = {category.id: category.name for category in labels.categories}
        tasks = [task for one in found if not isinstance(one, LabelMap) for task in tasks_of(one)]
        images = {
            task.file_name: (
                task.image_id,
                task.split,
                task.ref.path,
                {(one.id, names[one.category_id], one.bbox_xywh_px) for one in task.annotations},
            )
            for task in tasks
        }
        assert images == merged_by_hand()
        assert len({one[0] for one in images.values()}) == 21
        assert [*names.values()] == [
            *(category.name for category in SETS["a"][0].categories),
            *list(names.values())[2:],
        ]

    with Pipeline() as p:
        blocks, labels, _ = join(p, SETS, seed)
        assert_that((blocks, labels) | beam.Flatten(), check)


def test_blocks_do_not_depend_on_the_order_of_elements(tmp_path):
    results = []
    for shuffled in (1, 2):
        with Pipeline() as p:
            blocks, _, _ = join(p, SETS, shuffled=shuffled, reports_copies=False)
            path = tmp_path / str(shuffled)
            assert_that(blocks, lambda found, path=path: path.write_bytes(pickle.dumps(sorted(found))) and None)
        results.append(path.read_bytes())
    assert results[0] == results[1]
    for split in SPLITS:
        ids = [task.image_id for one in pickle.loads(results[0]) for task in tasks_of(one) if task.split == split]
        hashes = hash_images(np.array(ids), 0)
        assert len(ids) > 1
        assert (np.diff(hashes) > 0).all()


ANT = named((1, "ant"))


@pytest.mark.parametrize(
    ("shared", "texts"),
    [((False, False), ("b/1.jpg", "b/2.jpg")), ((True, True), ("b/1.jpg image 5", "b/1.jpg image 6"))],
)
def test_taken_ids_become_hashes(shared, texts):
    names = ("b/1.jpg", "b/1.jpg") if all(shared) else ("b/1.jpg", "b/2.jpg")
    tasks = [image(id_, name, objects={id_: 1, 9: 1}) for id_, name in zip((5, 6), names, strict=True)]
    block = block_of_tasks(tasks, SPLITS).replace(is_shared=np.array(shared))
    renumbered = renumber_block(block, np.array([5, 6]), np.array([6, 9]))
    renumbered.check("test")
    assert renumbered.image_id.tolist() == [name_id(text) for text in texts]
    own = [
        5,
        *(
            name_id(f"{name} annotation {id_}")
            for name, id_ in zip((names[0], *names[1:], names[1]), (9, 6, 9), strict=True)
        ),
    ]
    assert renumbered.object_id.tolist() == own
    assert (renumbered.id_text.texts(), renumbered.object_id_text.texts()) == (["5", "6"], ["", "9", "6", "9"])


def same_ids(split: str = "train") -> dict[str, tuple[LabelMap, list[ImageTask]]]:
    return {
        "a": (ANT, [image(1, "1.jpg", objects={1: 1})]),
        "b": (ANT, [image(1, "1.jpg", objects={1: 1}), image(2, "2.jpg", objects={2: 1})]),
        "c": (ANT, [image(2, "1.jpg", split, objects={2: 1})]),
    }


@pytest.mark.parametrize(("word", "split"), [("jpg", "train"), ("jpg", "val"), ("annotation", "train")])
def test_equal_hashes_are_an_error(word, split, monkeypatch):
    monkeypatch.setattr(
        join_sets, "name_id", lambda text: 7 if text.endswith(word) or word in text.split() else name_id(text)
    )
    with pytest.raises(CollidingImagesError, match=r"get the same (image )?id, 7"), Pipeline() as p:
        join(p, same_ids(split))


def test_ids_of_two_splits_of_a_set_may_be_equal():
    both = [image(1, "1.jpg", objects={1: 1}), image(1, "1.jpg", "val", objects={1: 1})]
    with Pipeline() as p:
        blocks, _, _ = join(p, {"a": (ANT, both[:1]), "b": (ANT, both)})
        found = blocks | beam.FlatMap(
            lambda one: [(task.split, task.image_id, task.file_name) for task in tasks_of(one)]
        )
        hashed = name_id("b/1.jpg")
        expected = [("train", 1, "a/1.jpg"), ("train", hashed, "b/1.jpg"), ("val", hashed, "b/1.jpg")]
        assert_that(found, equal_to(expected))


def test_set_without_an_image_is_an_error():
    with pytest.raises(ConfigError, match="set empty has no image to write"), Pipeline() as p:
        join(p, {"a": (ANT, [image(1, "1.jpg")]), "empty": (named(), [])})


def written(path: Path, data: bytes) -> ImageFile:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return ImageFile(str(path), len(data))


def test_copies_between_sets_are_reported(tmp_path):
    """Only files of one size in two sets are read: the others do not exist."""
    start, end = b"x" * 5000, b"y" * 5000
    contents = {
        "a/1": start + b"1" + end,
        "b/1": start + b"1" + end,
        "b/2": start + b"2" + end,
        "c/1": b"1" + start + end,
    }
    contents |= {"c/2": contents["a/1"], "a/3": b"0123456", "a/4": b"0123456"}
    sets: dict[str, tuple[LabelMap, list[ImageTask]]] = {name: (named(), []) for name in "abc"}
    for number, (name, data) in enumerate(contents.items()):
        task = image(number, name[2:])
        ref = ImageFile("/no/such/file", 7) if len(data) == 7 else written(tmp_path / name, data)
        sets[name[0]][1].append(msgspec.structs.replace(task, ref=ref))
    with Pipeline() as p:
        _, _, facts = join(p, sets)
        texts = facts | beam.FlatMap(lambda one: [text for _, text in one.warnings])
        text = "the sets share 2 images with the same bytes ('b/1' is 'a/1', 'c/2' is 'a/1'). Add --duplicates drop to "
        assert_that(texts, equal_to([f"{text}keep one of each"]))
    with Pipeline() as p:
        _, _, facts = join(p, sets, reports_copies=False)
        assert_that(facts, equal_to([]))


def test_facts_name_the_set():
    facts = FactsBuilder()
    rejects = [
        Rejected("image", 3, Reason.IMAGE_MISSING, "gone", file_name="x/3.jpg"),
        Rejected("image", 1, Reason.IMAGE_MISSING, "gone", file_name="1.jpg"),
        Rejected("annotation", 4, Reason.MALFORMED_BOX, "no box", file_name="/data/labels.json"),
        Rejected("annotation", 5, Reason.MALFORMED_BOX, "no box"),
    ]
    for reject in rejects:
        facts.reject("train", reject)
    facts.warn("train", "two")
    facts.add_unmatched("1.jpg")
    facts.preview({"score": "1 to 2"})
    named_facts = facts.build().with_set_name("a")
    names = [one.reject.file_name for one in listed(named_facts)]
    assert names == ["/data/labels.json", "", "a/1.jpg", "a/x/3.jpg"]
    assert (named_facts.warnings, named_facts.previews) == ({("train", "a: two")}, {"a: score": "1 to 2"})
    assert (named_facts.unmatched.first, named_facts.unmatched.compared) == (("a/1.jpg",), ("a/1.jpg",))


def test_images_of_a_set_may_ignore_exif():
    block, same = block_of_tasks([image(1, "1.jpg")], SPLITS), ClassMapping({}, {})
    named_blocks = [name_images(block, "a", same, (0,), ignores) for ignores in (False, True)]
    assert [image_tasks(named_block, SPLITS)[0].ignores_exif for named_block in named_blocks] == [False, True]
    with_class = block.replace(class_name=ragged_texts(["cat"]))
    assert name_images(with_class, "a", same, (0,), ignores_exif=True).ignores_exif is None
