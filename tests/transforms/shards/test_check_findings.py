import re
import shutil
from contextlib import nullcontext
from fractions import Fraction

import apache_beam as beam
import msgspec
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset.manifest import InputRows, MappedClass
from recordmill.schemas.errors import ConfigError, EmptyDatasetError, NoImageFoundError, TooManyRejectsError
from recordmill.schemas.names import NameSources
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import SplitSize
from recordmill.transforms.dataset.compare_names import NO_NAMES, Names
from recordmill.transforms.dataset.facts import AddFacts, Facts, FactsBuilder, add_facts
from recordmill.transforms.dataset.rejects import RejectKind, Rejects
from recordmill.transforms.shards.check_findings import (
    MIN_LISTED_REJECTS,
    CheckFindings,
    JobLimits,
    RejectLimit,
    check_findings,
    check_mapped,
    check_other_images,
    check_space,
    check_tiles,
    count_input_rows,
    disjoint_kinds,
    lone_labels,
    missed_shares,
    shared_files,
)
from recordmill.transforms.shards.describe_split import Rows
from tests.beam_pipeline import Pipeline
from tests.conftest import rejects_of
from tests.transforms.dataset.kinds import kind_rejects


def demands(output="", max_rejects: float = 0.1, rows=("a.json",), splits=("train",)) -> JobLimits:
    return JobLimits(splits, NameSources(("img",), rows, "path"), max_rejects, str(output), True)


def rejected(
    number: int, reason: Reason = Reason.IMAGE_MISSING, what: str = "image", split: str = "train"
) -> list[tuple[RejectKind, Rejects]]:
    return kind_rejects((split, Rejected(what, id_, reason, f"number {id_}")) for id_ in range(number))


def names(*given: str) -> Names:
    return Names(len(given), given, given)


def check(limits: JobLimits, rows: dict[str, Rows], kinds, images: Names = NO_NAMES, files: Names = NO_NAMES) -> None:
    """Check kinds of rejects, names of images without a file, and names of files without an image."""
    rejects = add_facts([Facts(rejects=dict([kind])) for kind in kinds]).rejects
    check_findings(limits, rows, Facts(rejects=rejects, unmatched=images, unlisted=files), kinds)


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ({"train": {"cat": 3, "dog": 2}, "val": {"dog": 2, "emu": 1}}, "split val: 'dog' (2), 'emu' (1). Keep one"),
        ({"train": {"cat": 3}, "val": {"dog": 2, "cat": 1}}, ""),
        ({"train": {"cat": 3}, "val": {"dog": 0}}, ""),  # it has no label at all
    ],
)
def test_class_map_that_drops_all_labels_of_a_split(numbers, fault):
    facts = FactsBuilder()
    for split, classes in numbers.items():
        for name, number in classes.items():
            facts.add_mapped(split, MappedClass(name, "pet" if name == "cat" else "", objects=number))
    limits = demands(splits=("train", "val"))._replace(class_maps={"": ("--class-map m.csv", "--allow-empty")})
    with pytest.raises(EmptyDatasetError, match=re.escape(fault)) if fault else nullcontext():
        check_mapped(limits, facts.build())
    check_mapped(limits._replace(class_maps={}), facts.build())


@pytest.mark.parametrize(
    ("class_maps", "fault"),
    [
        (
            {"birds": ("--class-map b.csv", "--allow-empty")},
            "set birds: --class-map b.csv drops all labels of the split",
        ),
        ({"cats": ("--class-map c.csv", "")}, ""),
        ({"": ("--class-map m.csv", "")}, ""),
    ],
)
def test_class_map_of_a_set_that_drops_all_its_labels(class_maps, fault):
    facts = add_facts([_mapped("birds", crow=""), _mapped("cats", cat="pet", crow="")])
    limits = demands(splits=("train",))._replace(class_maps=class_maps, joins_sets=True)
    with pytest.raises(EmptyDatasetError, match=re.escape(fault)) if fault else nullcontext():
        check_mapped(limits, facts)
    check_mapped(limits._replace(joins_sets=False), facts)  # Samples of several sets


def _mapped(data_set: str, **new_names: str) -> Facts:
    facts = FactsBuilder()
    for name, new_name in new_names.items():
        facts.add_mapped("train", MappedClass(name, new_name, objects=2))
    return facts.build().with_set_name(data_set)


@pytest.mark.parametrize(
    ("plans", "fault"),
    [
        ({}, "split val gets no tile: 2 of its 3 images have no tile with an object. Use a smaller --tile-min-visible"),
        ({"val": SplitSize(1, 1, 1)}, ""),
    ],
)
def test_split_without_a_tile(plans, fault):
    facts = Facts(counts={("val", Metric.WITHOUT_TILE.value): 2}, plans={"train": SplitSize(9, 9, 1), **plans})
    rows = {"train": Rows(5, 5), "val": Rows(3, 1)}
    with pytest.raises(EmptyDatasetError, match=re.escape(fault)) if fault else nullcontext():
        check_tiles(demands(splits=("train", "val")), rows, facts)


GROWN = {"base": {"val": "digest"}, "other_images_cure": "Cure"}


def test_a_job_that_adds_may_lack_images_of_a_split_of_the_data_set():
    limits, rows = demands(splits=("train", "val"))._replace(**GROWN), {"train": Rows(2, 0), "val": Rows(0, 0)}
    check(limits, rows, [])
    with pytest.raises(EmptyDatasetError, match="split train gets none"):  # which the data set lacks, too
        check(limits, {"train": Rows(0, 0), "val": Rows(2, 0)}, [])
    facts = Facts(counts={("val", Metric.WITHOUT_TILE.value): 2}, plans={"train": SplitSize(9, 9, 1)})
    check_tiles(limits, rows, facts)


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ((), ""),
        (("b",), "1 image has the name of an image of the data set, and other bytes: 'b'. Cure"),
        (("d", "b", "a", "c"), "4 images have the name of an image of the data set, and other bytes: 'a', 'b', 'c'"),
    ],
)
def test_images_of_known_names_with_other_bytes(images, text):
    facts = FactsBuilder()
    facts.add_other_images(*images)
    with pytest.raises(ConfigError, match=re.escape(text)) if text else nullcontext():
        check_other_images(demands()._replace(**GROWN), facts.build())


def test_present_images_are_in_their_splits():
    limits = demands(splits=("train", "val"))._replace(shares=(("train", Fraction(4, 5)), ("val", Fraction(1, 5))))
    facts = Facts({("train", Metric.PRESENT.value): 80, ("val", Metric.PRESENT.value): 18})
    facts.plans["val"] = SplitSize(2, 1, 1)
    assert list(missed_shares(limits, facts)) == []


def test_rows_are_counted_by_split():
    facts = FactsBuilder()
    facts.add_rows("train", InputRows("a.json", "instances", 5, 9))
    facts.add_rows("train", InputRows("b.json", "captions", 4, 8))
    facts.add_rows("val", InputRows("c.csv", "labels", 2, 0))
    facts.count("train", Metric.ROWS_MERGED, 4)
    assert count_input_rows(["train", "val", "test"], facts.build()) == {
        "train": Rows(5, 17),
        "val": Rows(2, 0),
        "test": Rows(0, 0),
    }


@pytest.mark.parametrize(("merged", "is_said"), [(0, True), (10, True), (11, False), (40, False)])
def test_annotation_files_of_different_splits(merged, is_said):
    facts = FactsBuilder()
    facts.add_rows("train", InputRows("a.json", "instances", 60, 9))
    facts.add_rows("val", InputRows("b.json", "captions", 40, 8))
    facts.add_rows("train", InputRows("c.json", "image_info", 4, 0))
    facts.count("train", Metric.ROWS_MERGED, merged)
    warnings = list(disjoint_kinds(facts.build()))
    assert [text.partition(" (")[0] for text in warnings] == [f"the annotation files share {merged} images"] * is_said
    facts.count("train", Metric.SHARED_FILES, 2)
    assert list(disjoint_kinds(facts.build())) == []
    (text,) = shared_files(facts.build())
    assert text.startswith("2 image ids name a file that another id names, so ")


def test_annotation_files_of_different_data_sets():
    facts = {}
    for name, kinds in {"one": ["instances"], "two": ["captions"], "three": ["captions", "keypoints"]}.items():
        builder = FactsBuilder()
        for kind in kinds:
            builder.add_rows("train", InputRows(f"{kind}.json", kind, 9, 9))
        facts[name] = builder.build().with_set_name(name)
    assert list(disjoint_kinds(add_facts([facts["one"], facts["two"], Facts()]))) == []
    merged = FactsBuilder()
    merged.count("train", Metric.ROWS_MERGED, 9)
    assert list(disjoint_kinds(add_facts([facts["three"], merged.build().with_set_name("three")]))) == []
    (text,) = disjoint_kinds(add_facts([*facts.values(), merged.build().with_set_name("one")]))
    assert text.startswith("three: the annotation files share 0 images (images of each kind: captions 9, keypoints 9)")


def lone(number: int) -> list[tuple[RejectKind, Rejects]]:
    reject = Rejected("image", None, Reason.LABEL_WITHOUT_IMAGE, "", file_name="labels/val/a.txt")
    return kind_rejects([("val", reject)] * number)


@pytest.mark.parametrize(
    ("number", "max_rejects", "error", "said"),
    [
        (6, 0.1, ConfigError, "6 of 10 label files in labels/val have no image, such as 'labels/val/a.txt'"),
        (5, 0.1, TooManyRejectsError, "label_without_image 5"),
        (6, 1, None, "6 of 10 label files in labels/val have no image"),
        (5, 1, None, ""),
    ],
)
def test_labels_without_images(number, max_rejects, error, said):
    kinds = lone(number)
    facts = Facts({("val", Metric.LABEL_FILES.value): 10}, rejects=dict(kinds))
    limits = demands(max_rejects=max_rejects, splits=("train", "val"))
    with pytest.raises(error, match=re.escape(said)) if error else nullcontext():
        check_findings(limits, {"train": Rows(5, 0), "val": Rows(10, 0)}, facts, kinds)
    texts = list(lone_labels(limits, facts))
    assert [said in text for text in texts] == [True] * (number > 5)


@pytest.mark.parametrize(("merged", "is_advised"), [(0, False), (9, True)])
def test_cure_for_files_of_two_splits(merged, is_advised):
    kinds = rejected(9)
    facts = Facts(
        {("train", Metric.ROWS_MERGED.value): merged},
        {("train", f"{kind}.json", kind): InputRows(f"{kind}.json", kind, 10, 9) for kind in ("instances", "captions")},
        dict(kinds),
        unmatched=names("1.jpg"),
    )
    with pytest.raises(TooManyRejectsError) as caught:
        check_findings(demands(), {"train": Rows(20 - merged, 18)}, facts, kinds)
    assert ("--images can be repeated" in str(caught.value)) == is_advised
    assert ("by a larger --max-rejects" in str(caught.value)) == is_advised


def test_up_to_limit_nothing_is_written(tmp_path):
    check(demands(tmp_path), {"train": Rows(30, 10)}, rejected(3), names("0"))
    check(demands(tmp_path, max_rejects=0.5), {"train": Rows(2, 0)}, rejected(1), names("1.jpg"))
    check(demands(tmp_path), {"train": Rows(2, 100)}, rejected(9, Reason.UNKNOWN_CATEGORY, "annotation"))
    assert list(tmp_path.iterdir()) == []


BROKEN, UNSAFE = Reason.MALFORMED_IMAGE, Reason.UNSAFE_FILE_NAME


@pytest.mark.parametrize(
    ("kinds", "images", "files", "error", "included", "excluded"),
    [
        (rejected(10), ["1.jpg"], ["t/1.jpg"], NoImageFoundError, "--match suffix or --images img/t.", "No image"),
        (rejected(10, UNSAFE), ["1.jpg"], ["t/1.jpg"], NoImageFoundError, "none of the 10 images", "No image"),
        (rejected(10), ["1.jpg", "2.jpg"], ["a/1.jpg", "b/2.jpg"], NoImageFoundError, "Use --match suffix.", " or "),
        (rejected(10), ["1.jpg", "2.jpg"], ["a/1.jpg", "b/1.jpg"], NoImageFoundError, "Use --images img/a.", "suffix"),
        # Rows without a file name do not hide that no other has a file.
        ([*rejected(9, BROKEN), *rejected(1)], ["1.jpg"], [], NoImageFoundError, "a.json names '1.jpg'", "No image"),
        # Others are rejected for other reasons: some have a file.
        (rejected(10, BROKEN), [], [], TooManyRejectsError, "malformed_image 10", "names"),
        ([*rejected(9, Reason.NO_GROUP), *rejected(1)], ["1.jpg"], [], TooManyRejectsError, "no_group 9", "none of"),
        # Images that files alone name have no other name to compare.
        (rejected(10, UNSAFE), [], ["a.txt"], TooManyRejectsError, "unsafe_file_name 10", "a.txt"),
        ([*rejected(1), *rejected(3, BROKEN)], ["1.jpg"], [], TooManyRejectsError, "malformed_image 3", "a.json names"),
    ],
)
def test_images_without_file_differ_from_other_rejects(kinds, images, files, error, included, excluded):
    with pytest.raises(error) as caught:
        check(demands(), {"train": Rows(10, 0)}, kinds, names(*images), names(*files))
    assert included in str(caught.value)
    assert excluded not in str(caught.value)
    assert "rejects.jsonl" not in str(caught.value)  # without an output


def test_samples_without_image_folder_are_not_looked_up():
    limits = demands()._replace(sources=NameSources((), ()))
    with pytest.raises(TooManyRejectsError, match=r"malformed_image 9\. The first: number 0"):
        check(limits, {"train": Rows(10, 0)}, [*rejected(9, BROKEN), *rejected(1)], names("1.jpg"))


def test_without_any_file_nothing_is_written(tmp_path):
    with pytest.raises(NoImageFoundError, match=r"so nothing is written: a\.json names '1.jpg'") as caught:
        check(demands(tmp_path, max_rejects=1), {"train": Rows(2, 0)}, rejected(2), names("1.jpg"))
    assert (caught.value.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_too_many_rejects(tmp_path):
    kinds, rows = [*rejected(1, split="val"), *rejected(6)], {"train": Rows(9, 0), "val": Rows(1, 0)}
    with pytest.raises(TooManyRejectsError) as caught:
        check(demands(tmp_path, splits=("train", "val")), rows, kinds, names("1.jpg"), names("1.JPG"))
    text = str(caught.value)
    assert text.startswith("7 of 10 images (70.0%) are rejected, more than --max-rejects 0.1 allows: image_missing 7. ")
    paths = ", ".join(f"{tmp_path}/.recordmill-{split}/rejects.jsonl" for split in ("train", "val"))
    assert f"They are listed in {paths}. a.json names '1.jpg'; img has '1.JPG'. Names differ in case" in text
    assert text.endswith(
        "No image was read. Fix the data and run again, or accept the rejects by a larger --max-rejects"
    )
    assert [(line["split"], line["id"]) for line in rejects_of(tmp_path)] == [
        *(("train", id_) for id_ in range(6)),
        ("val", 0),
    ]


def test_empty_split_leaves_no_files(tmp_path):
    note = tmp_path / ".recordmill-val" / "recipe.json"
    note.parent.mkdir()
    note.write_text("{}")
    rows = {"train": Rows(2, 0), "val": Rows(0, 0)}
    with pytest.raises(EmptyDatasetError):
        check(demands(tmp_path, splits=("train", "val")), rows, [])
    assert not note.exists()


HALF, NONE = Fraction(1, 2), Fraction(1, 1000)
RANK = "--split-by rank is exact"


@pytest.mark.parametrize(
    ("sources", "shares", "share_cure", "told"),
    [
        (("a b.json",), {}, RANK, "'a b.json' names this split. Add images to it there, or leave it out"),
        (("a.json",), {"train": HALF, "val": HALF}, RANK, f"give it a larger share, or leave it out. {RANK}"),
        (("a.json",), {"train": HALF, "val": HALF}, "", "give it a larger share, or leave it out"),
        (("a.json",), {"train": HALF, "val": NONE}, RANK, "give it a larger share, or leave it out"),
        ((), {}, "", "give the same split= to the reading and the writing transform, or leave it out"),
    ],
)
def test_cure_of_empty_split_is_not_refused(sources, shares, share_cure, told):
    limits = demands(splits=("train", "val"))
    limits = limits._replace(
        sources=NameSources(("images",), sources), shares=tuple(shares.items()), share_cure=share_cure
    )
    with pytest.raises(EmptyDatasetError) as caught:
        check(limits, {"train": Rows(2, 0), "val": Rows(0, 0)}, [])
    assert str(caught.value) == f"split val gets none of the 2 images: {told}"


def test_archive_in_place_of_images():
    files = Names.sample(["a.zip"])
    with pytest.raises(
        EmptyDatasetError, match=r"nothing to write\. Archives within the folders of images .* Unpack 'a\.zip'"
    ):
        check(demands(), {"train": Rows(0, 0)}, [], files=files)
    with pytest.raises(EmptyDatasetError, match=r"val gets none of the 2 images(?!.*Archives)"):
        check(demands(), {"train": Rows(2, 0), "val": Rows(0, 0)}, [], files=files)


def test_images_beside_file_that_names_them_are_named_of(tmp_path):
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(b"")
    told = []
    for missing in (("1.jpg", "2.jpg"), ("1.jpg", "3.jpg"), (f"../{tmp_path.name}/1.jpg",)):
        asked = demands(rows=("x/a.json", f"{tmp_path}/a.json"))
        with pytest.raises(NoImageFoundError) as caught:
            check(asked, {"train": Rows(2, 0)}, rejected(2), names(*missing))
        told.append(f"Use --images {tmp_path}." in str(caught.value))
    assert told == [True, False, False]


def checked(p, number: int, limits: JobLimits) -> beam.PCollection:
    facts = FactsBuilder()
    for path in ("a.json", "b.json"):
        facts.add_rows("train", InputRows(path, "instances", 3, 4))
    facts.count("train", Metric.ROWS_MERGED, 3)
    facts.count("train", Metric.OBJECTS, 2)
    facts.add_unlisted("t/1.jpg")
    facts.add_unmatched("1.jpg")
    facts.warn("train", "this is odd")
    facts.warn("val", "this is odd")
    step_facts = p | "Facts" >> beam.Create([msgspec.structs.replace(facts.build(), rejects=dict(rejected(number)))])
    return (step_facts,) | AddFacts() | CheckFindings(limits)


def test_transform_warns_once(caplog):
    with Pipeline() as p:
        assert_that(checked(p, 1, demands(max_rejects=0.34)), equal_to([{"train": Rows(3, 8)}]))
    assert [record.getMessage() for record in caplog.records if "odd" in record.getMessage()] == ["this is odd"]


def test_transform_holds_rejects_against_all_rows(tmp_path):
    with pytest.raises(Exception, match=r"1 of 3 images") as caught, Pipeline() as p:
        _ = checked(p, 1, demands(tmp_path, max_rejects=0.33))
    assert "a.json names '1.jpg'; img has 't/1.jpg'" in str(caught.value)
    assert [line["id"] for line in rejects_of(tmp_path)] == [0]


ROWS = {"train": Rows(900, 40), "val": Rows(100, 5000)}


def reject(number: int, what: str = "image", split: str = "train") -> tuple[str, Rejected]:
    return split, Rejected(what, number, Reason.IMAGE_UNREADABLE, f"number {number}")


def limit(output, max_rejects: float) -> RejectLimit:
    return RejectLimit(demands(output, max_rejects, splits=("train", "val")))


def add(limit: RejectLimit, items, earlier=()) -> None:
    """Add the rejects of one shard."""
    for run in kind_rejects(items):
        limit.add(run, ROWS, kind_rejects(earlier))


def accepted(limit: RejectLimit, items, earlier=()) -> int:
    """How many rejects were taken before the error."""
    for number, item in enumerate(items):
        try:
            add(limit, [item], earlier)
        except TooManyRejectsError:
            return number
    pytest.fail("no error")


def test_first_reject_over_limit_of_all_splits_stops_job(tmp_path):
    assert accepted(limit(tmp_path, 0.2), map(reject, range(1000))) == 200


def test_rejects_of_earlier_steps_count(tmp_path):
    earlier = [reject(-number - 1) for number in range(50)] + [reject(-number, "annotation") for number in range(9)]
    assert accepted(limit(tmp_path, 0.2), map(reject, range(1000)), earlier) == 150


def test_shard_written_again_counts_once(tmp_path):
    tries = limit(tmp_path, 0.2)
    shards = [[reject(number) for number in range(first, first + 40)] for first in range(0, 200, 40)]
    for shard in shards * 3:
        add(tries, shard[::-1])
    assert accepted(tries, [reject(200)]) == 0


def test_images_and_annotations_have_limits_of_their_own(tmp_path):
    both = [reject(number, what) for number in range(2000) for what in ("image", "annotation")]
    assert accepted(limit(tmp_path, 0.15), both) == 2 * 150
    assert accepted(limit(tmp_path, 0.15), both[1::2]) == 756


def test_few_rejects_let_job_go_on_and_list_all(tmp_path):
    assert accepted(limit(tmp_path, 0), map(reject, range(1000))) == MIN_LISTED_REJECTS - 1


def test_rejects_so_far_are_written_by_split_and_counted(tmp_path):
    stopped, earlier = limit(tmp_path, 0.1), [reject(-1, split="val")]
    for number in range(99):
        add(stopped, [reject(number)], earlier)
    with pytest.raises(
        TooManyRejectsError, match=r"101 of 1000 images \(10\.1%\) .*--max-rejects 0\.1 .*so far are in"
    ):
        add(stopped, [reject(99)], earlier)
    assert sorted((row["split"], row["id"]) for row in rejects_of(tmp_path)) == [
        *(("train", number) for number in range(100)),
        ("val", -1),
    ]


@pytest.mark.parametrize(
    ("images", "missed"),
    [
        ((71, 29), "71.0%, not 80.0%; val gets 29.0%, not 20.0%. cure"),
        ((82, 18), ""),
        ((825, 175), "82.5%, not 80.0%"),
        ((3, 1), ""),  # no better division exists
        ((2, 2), "50.0%, not 80.0%"),
        ((0, 0), ""),
    ],
)
def test_missed_shares(images, missed):
    shares = (("train", Fraction(4, 5)), ("val", Fraction(1, 5)))
    limits = demands(splits=("train", "val"))._replace(shares=shares, share_cure="cure")
    plans = {name: SplitSize(number, 1, 1) for name, number in zip(("train", "val"), images, strict=True)}
    sentences = list(missed_shares(limits, Facts(plans=plans)))
    assert [missed in sentence for sentence in sentences] == [True] * bool(missed)
    counts = {(split, Metric.GROUPS.value): 3 for split in plans}
    groups = ". Each of 6 groups stays in one split; 'a' has 71 images. cure"
    grouped = missed_shares(limits, Facts(counts, plans=plans, largest_group=(71, "a")))
    assert list(grouped) == [sentence.replace(". cure", groups) for sentence in sentences]
    divided = {(split, Metric.DIVIDED.value): size.images for split, size in plans.items()}
    tiles = {"train": SplitSize(900, 1, 1), "val": SplitSize(1, 1, 1)}
    assert list(missed_shares(limits, Facts(divided, plans=tiles))) == sentences
    limited = Facts({("train", Metric.OVER_LIMIT.value): 1}, plans=plans)
    assert not list(missed_shares(limits, limited))


SIZES = {"train": SplitSize(10, 900, 2), "val": SplitSize(1, 100, 1)}


def free(monkeypatch, folder, number):
    """Let the disk of `folder` have `number` bytes."""

    def usage(path):
        assert path == str(folder)
        return shutil._ntuple_diskusage(2000, 0, number)

    monkeypatch.setattr(shutil, "disk_usage", usage)


@pytest.mark.parametrize(
    ("number", "is_exact", "is_warned"), [(1000, True, False), (999, True, True), (799, False, True), (0, False, True)]
)
def test_plan_is_compared_with_free_space(tmp_path, monkeypatch, caplog, number, is_exact, is_warned):
    free(monkeypatch, tmp_path, number)
    check_space(str(tmp_path / "not" / "yet"), SIZES, is_exact)
    assert bool(caplog.records) == is_warned


def test_finished_shards_are_subtracted_and_a_bucket_has_room(tmp_path, monkeypatch):
    state = tmp_path / ".recordmill-train"
    state.mkdir()
    (state / "coco-train.tfrecord-00000-of-00002").write_bytes(bytes(600))
    free(monkeypatch, tmp_path, 400)
    check_space(str(tmp_path), SIZES, True)
    check_space(str(tmp_path), {"val": SplitSize(1, 500, 1)}, True)
    with pytest.raises(ConfigError, match=r"up to 501 bytes, and the disk of .* has 400 bytes free"):
        check_space(str(tmp_path), {"val": SplitSize(1, 501, 1)}, True)
    check_space("gs://bucket/folder", SIZES, True)
