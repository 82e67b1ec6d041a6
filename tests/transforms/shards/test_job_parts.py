"""Parts of a job: their shards, the digest of their plan, and which of them `seal` takes."""

import msgspec
import pytest

from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.dataset.recipes import InputFile, Recipe
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Annotation, Category
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import JobPart, ShardKey, SplitSize, parse_job_part
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.shards.job_parts import FinishedPart, JobPlan, sum_image_hashes
from recordmill.transforms.shards.seal_parts import choose_parts
from tests.transforms.blocks.of_tasks import block_of_tasks

KEY = ShardKey("train", 1, 4)
RECIPE = Recipe(FORMAT, "coco", "train", "detection", (), (InputFile("instances", "a.json", 9, "yZRlqg=="),), (), {})
PLAN = JobPlan(
    (RECIPE,),
    {"pillow": "12.1", "zlib": "1.3"},
    0.01,
    "report",
    7,
    LabelMap((Category(1, "cat"),)),
    DETECTION,
    (),
    Facts(
        counts={("train", "b"): 1, ("train", "a"): 2},
        warnings={("train", "one"), ("train", "two"), ("train", "three")},
        plans={"train": SplitSize(9, 900, 4)},
    ),
    (),
)


def image(id_: int, size: int = 100, objects: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False) for number in range(objects))
    return ImageTask(id_, f"{id_}.jpg", 40, 30, ImageFile(f"{id_}.jpg", size), "train", annotations)


def hashes(*images: ImageTask, key: ShardKey = KEY) -> tuple[int, int]:
    return sum_image_hashes(key, pack_block(block_of_tasks(images, ["train"])))


def test_hashes_depend_on_images_and_shards_only():
    (number, whole), first, second = hashes(image(1), image(2, 7)), hashes(image(2, 7)), hashes(image(1))
    assert number == 2
    assert whole == (first[1] + second[1]) % (1 << 63)
    assert sum_image_hashes(KEY, b"") == (0, 0)


@pytest.mark.parametrize(
    "images",
    [
        [image(1), image(3, 7)],
        [image(1, 7), image(2)],  # sizes changed places
        [image(1), image(2, 8)],
        [image(1, objects=1), image(2, 7)],
        [image(1), image(2, 7), image(2, 7)],
    ],
)
def test_hashes_of_other_images_differ(images):
    assert hashes(*images)[1] != hashes(image(1), image(2, 7))[1]


def test_hashes_of_another_shard_differ():
    assert (
        hashes(image(1), key=ShardKey("train", 2, 4)) != hashes(image(1)) != hashes(image(1), key=ShardKey("val", 1, 4))
    )


def replaced(**fields) -> JobPlan:
    return msgspec.structs.replace(PLAN, **fields)


def with_facts(**fields) -> JobPlan:
    return replaced(facts=msgspec.structs.replace(PLAN.facts, **fields))


def test_digest_does_not_depend_on_order():
    """The order of a set of texts is another one in each process."""

    class Backwards(set):
        def __iter__(self):
            return reversed(list(super().__iter__()))

    assert with_facts(warnings=Backwards(PLAN.facts.warnings)).digest == PLAN.digest
    facts = {"counts": {("train", "a"): 2, ("train", "b"): 1}, "warnings": set(PLAN.facts.warnings)}
    other = msgspec.structs.replace(with_facts(**facts), made_by={"zlib": "1.3", "pillow": "12.1"})
    assert other.digest == PLAN.digest
    stored = FinishedPart(1, JobPart(0, 1), PLAN.digest, PLAN, Facts(), (), ((KEY, "ab"),))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=FinishedPart)
    assert read == stored
    assert read.plan.digest == PLAN.digest


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replaced(images=8), "names, sizes or labels of images"),
        (with_facts(counts={("train", "a"): 3}), "names, sizes or labels of images"),
        (replaced(labels=LabelMap((Category(1, "dog"),))), "classes or features"),
        (replaced(max_rejects=0.5), "--max-rejects: 0.01, now 0.5"),
        (replaced(duplicates="fail"), "--duplicates: report, now fail"),
        (replaced(made_by={"pillow": "12.2"}), "version of pillow: 12.1, now 12.2, version of zlib: 1.3, now None"),
        (
            replaced(
                recipes=(msgspec.structs.replace(RECIPE, options={"seed": 3}),), made_by={**PLAN.made_by, "zlib": "2"}
            ),
            "seed: default, now 3, version of zlib: 1.3, now 2",
        ),
    ],
)
def test_digests_of_other_plans_differ(other, difference):
    assert other.digest != PLAN.digest
    assert PLAN.differences(other) == difference


def test_keys_of_plan():
    assert list(with_facts(plans={"train": SplitSize(1, 1, 2), "test": SplitSize(1, 1, 3)}).keys()) == [
        ShardKey("train", 0, 2),
        ShardKey("train", 1, 2),
    ]


def chosen(*texts: str) -> list[str]:
    return [str(part) for part in choose_parts("my out", [parse_job_part(text) for text in texts], ["val", "train"])]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [(["0/1"], ["0/1"]), (["0/2", "1/2"], ["0/2", "1/2"]), (["0/3", "0/2", "1/2", "2/3"], ["0/2", "1/2"])],
)
def test_complete_parts_are_chosen(parts, expected):
    assert chosen(*parts) == expected


def test_missing_parts_are_named():
    with pytest.raises(ConfigError) as one:
        chosen("0/3", "0/2", "2/3")
    assert str(one.value) == (
        "my out: part 1/3 of train and val is missing, or still running. There are parts of N = 2, too, which do not "
        "count here. Run the same command with --part 1/3, and then: recordmill seal 'my out'"
    )
    with pytest.raises(ConfigError, match=r"--part 8/12 and 3 more, and then"):
        chosen("0/12")


@pytest.mark.parametrize(
    "text", ["", "1", "1/", "/2", "2/2", "0/0", "-1/2", "1/-2", "1.0/2", "٣/٤", "0/100000", " 0/1"]
)
def test_texts_that_name_no_part(text):
    with pytest.raises(ValueError, match=r"0/"):
        parse_job_part(text)
