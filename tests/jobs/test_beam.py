"""Pipelines of users on recordmill.beam."""

import io
import re
import shutil
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from PIL import Image

from recordmill import open as open_data_set
from recordmill.beam import Encode, JoinDatasets, Read, ReadDataset, Sample, SampleObject, WriteDataset
from recordmill.launch.runners.beam_options import beam_options
from recordmill.schemas.errors import CollidingImagesError, ConfigError, RecordmillError, TooManyRejectsError
from recordmill.transforms.containers.tfrecord import open_records
from tests.beam_pipeline import Pipeline
from tests.conftest import (
    CATEGORIES,
    annotation,
    draw_jpeg,
    every_kind,
    examples_by_name,
    image_row,
    manifest_of,
    rejects_of,
    shard_bytes,
    write_coco,
)

pytestmark = pytest.mark.usefixtures("empty_pages")
PAGE = Path(__file__).parents[2] / "docs" / "beam.md"


def drawn_sample(number: int, **fields) -> Sample:
    """An image of noise, with a cat, as bytes."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (30, 40, 3), np.uint8)).save(file, "JPEG")
    fields = {"objects": [SampleObject("cat", np.array([1, 2, 30, 20.5]))], **fields}
    return Sample(f"{number}.jpg", data=file.getvalue(), **fields)


def test_the_programs_of_the_page(tmp_path, recordmill, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(beam, "Pipeline", Pipeline)
    assert recordmill("sample", "sample").code == 0
    files = [path.read_text() for path in sorted((PAGE.parent / "beam").glob("*.py"))]
    for program in [*re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL), *files]:
        exec(program, {"__name__": "__main__"})
    large, angular, of_sqlite, without = map(open_data_set, ("large", "relabelled", "of-sqlite", "classes"))
    removed = [split.annotations.removed for split in large.manifest.splits.values()]
    assert all(split.annotations.rows == split.annotations.accounted for split in large.manifest.splits.values())
    assert sum(removed) > 0
    assert [category.name for category in angular.manifest.categories] == ["angular", "figure", "round"]
    assert [category.name for category in without.manifest.categories] == [
        "circle",
        "figure",
        "square",
        "star",
        "triangle",
    ]
    assert without.manifest.splits["train"].images.removed > 0
    assert len(of_sqlite["train"]) > len(of_sqlite["val"]) > 0
    assert list(Path("records").iterdir())
    assert "type hint" not in caplog.text  # Beam's warnings, which a user cannot mend


@pytest.fixture
def piped(tmp_path):
    """Writes Samples, or what a function makes of a source, to a folder."""

    def write(samples, output="out", expected="detection", **options):
        with Pipeline() as p:
            manifest = p | beam.Create(samples) | WriteDataset(tmp_path / output, **options)
            assert_that(manifest | beam.Map(lambda one: one.layout), equal_to([expected]))
        return open_data_set(tmp_path / output)

    return write


def test_unchanged_samples_give_bytes_of_command(sample, tmp_path, recordmill):
    split = ["--split", "train=0.75,val=0.25", "--num-shards", "2", "--masks", "both"]
    assert recordmill("convert", *every_kind(sample), *split, "--output", tmp_path / "command").code == 0
    shares = {"train": 0.75, "val": 0.25}
    with Pipeline() as p:
        samples, labels, facts = p | ReadDataset(
            images=sample.images,
            instances=sample.instances,
            keypoints=sample.keypoints,
            captions=sample.captions,
            panoptic=sample.panoptic,
            panoptic_masks=sample.panoptic_masks,
            masks="both",
            split=shares,
        )
        parts = {"masks": "both", "keypoints": True, "captions": True, "panoptic": True}
        sizes = {"name": "coco", "num_shards": 2, "max_rejects": 0.2, "split": shares}
        samples | beam.Reshuffle() | WriteDataset(tmp_path / "out", labels, facts, **parts, **sizes)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command")
    assert rejects_of(tmp_path / "out") == rejects_of(tmp_path / "command")
    assert (tmp_path / "out" / "label_map.json").read_bytes() == (tmp_path / "command" / "label_map.json").read_bytes()
    for split in shares:
        ours, theirs = (manifest_of(tmp_path / name)["splits"][split] for name in ("out", "command"))
        for counts in ("images", "annotations"):
            assert {**ours[counts], "rows": 0} == {**theirs[counts], "rows": 0}
    assert recordmill("verify", tmp_path / "out").code == 0


def test_class_folders_give_bytes_of_command(sample, tmp_path, recordmill):
    """In a plain pipeline, with Beam's default runner."""
    classes = Path(sample.images).parent / "classes"
    assert recordmill("convert", classes, "--format", "folder", "--output", tmp_path / "command").code == 0
    with beam.Pipeline() as p:
        p | ReadDataset(classes) | WriteDataset(tmp_path / "out", name="images")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command")


@pytest.fixture
def coco(sample):
    """Keywords that read the COCO data set."""
    return {"data": sample.images, "instances": sample.instances}


def _steps(read: Read) -> beam.PCollection:
    """Drop half of the images in steps of several kinds: of Samples, of Any, and a composite step with keys in it."""
    kept = read | beam.Filter(lambda one: one.image_id % 2)
    return kept | "Same" >> beam.Map(lambda one: one) | "Composite" >> _Composite()


class _Composite(beam.PTransform):
    def expand(self, samples):
        return samples | beam.Reshuffle() | beam.Map(lambda one: one)


def test_steps_keep_classes_counts_and_splits(coco, tmp_path, caplog):
    with Pipeline() as p:
        read = p | ReadDataset(**coco, split={"train": 0.5, "val": 0.5})
        _steps(read) | WriteDataset(tmp_path / "out", max_rejects=1)
    data = open_data_set(tmp_path / "out")
    assert [*data] == ["train", "val"]
    assert [category.id for category in data.manifest.categories] == [1, 2, 4, 7, 11]
    for split in data.manifest.splits.values():
        assert split.images.removed > 0
        assert split.images.rows == split.images.accounted
    assert "classes and counts" not in caplog.text


def test_read_is_a_collection_of_samples(coco):
    with Pipeline() as p:
        read = p | ReadDataset(**coco)
        samples, labels, facts = read
        assert (read.samples, read.labels, read.facts) == (samples, labels, facts)
        assert isinstance(read, beam.PCollection)
        assert (read.element_type, read.is_bounded) == (Sample, True)
        number = read | beam.combiners.Count.Globally()
        is_equal = number | beam.Map(lambda count, given: 20 < count == len(given), beam.pvalue.AsList(read))
        assert_that(is_equal, equal_to([True]))


def test_pipeline_survives_its_portable_form(coco, tmp_path):
    p = Pipeline()
    _steps(p | ReadDataset(**coco)) | WriteDataset(tmp_path / "out", max_rejects=1)
    again = beam.Pipeline.from_runner_api(p.to_runner_api(), "DirectRunner", beam_options([]))
    again.run().wait_until_finish()
    assert len(open_data_set(tmp_path / "out")["train"])


@pytest.mark.parametrize("transform", [lambda folder: WriteDataset(folder / "out"), lambda _: Encode()])
def test_classes_that_a_step_loses_are_warned_of(transform, coco, tmp_path, caplog):
    p = Pipeline()
    read = p | ReadDataset(**coco)
    keyed = read | "Key" >> beam.Map(lambda one: (one.image_id, one)).with_output_types(tuple[int, Sample])
    keyed | beam.Values() | transform(tmp_path)
    assert "does not get the classes and counts of ReadDataset, because outputs of Key are not Samples" in caplog.text


def test_two_reads_are_not_joined(coco, sample, tmp_path):
    p = Pipeline()
    reads = [p | f"Read{number}" >> ReadDataset(**coco) for number in (1, 2)]
    joined = (reads[0] | beam.Filter(bool), reads[1]) | beam.Flatten()
    with pytest.raises(
        ConfigError, match="has the Samples of Read1 and Read2, whose classes and counts are not joined"
    ):
        joined | WriteDataset(tmp_path / "out")
    apart = [read.samples for read in reads] | "Apart" >> beam.Flatten()
    apart | "WriteApart" >> WriteDataset(tmp_path / "apart")


def test_join_datasets_of_every_kind(sample, tmp_path):
    """Records of the first data set are as without a second one, but for their names."""
    kinds = {
        name: getattr(sample, name) for name in ("instances", "keypoints", "captions", "panoptic", "panoptic_masks")
    }
    options = {"masks": "rle", "max_rejects": 0.5}
    with Pipeline() as p:
        (
            p
            | "Alone" >> ReadDataset(images=sample.images, **kinds)
            | "WriteAlone" >> WriteDataset(tmp_path / "alone", **options)
        )
        sets = {name: p | name >> ReadDataset(images=sample.images, **kinds) for name in ("a", "b")}
        sets["b"] |= beam.Filter(lambda one: one.objects)
        sets | JoinDatasets(find_copies=False) | WriteDataset(tmp_path / "both", **options)
    alone, both = examples_by_name(tmp_path / "alone"), examples_by_name(tmp_path / "both")
    assert {name: both[f"a/{name}"] | {"image/filename": [name.encode()]} for name in alone} == alone
    manifest = open_data_set(tmp_path / "both").manifest
    assert manifest.categories == open_data_set(tmp_path / "alone").manifest.categories
    split = manifest.splits["train"]
    assert split.images.removed > 0
    assert split.annotations.rows == split.annotations.accounted
    ids = [example["image/source_id"][0] for example in both.values()]
    assert len({*ids}) == len(ids) > len(alone)
    names = {reject["file_name"].split("/")[0] for reject in rejects_of(tmp_path / "both")}
    assert names == {"a", "b"}


def test_joined_data_sets_join_others(tmp_path):
    """Nested joins, with Samples that a pipeline makes; classes meet by name."""
    made = {
        name: [drawn_sample(number, objects=[SampleObject(name, (1, 2, 30, 20))])]
        for number, name in enumerate(("ant", "bee", "ant"))
    }
    with Pipeline() as p:
        ants, bees = (p | name >> beam.Create(samples) for name, samples in made.items())
        inner = {"ants": ants, "bees": bees} | "Inner" >> JoinDatasets()
        {"inner": inner, "ants": ants} | "Outer" >> JoinDatasets() | WriteDataset(tmp_path / "out")
    data_set = open_data_set(tmp_path / "out")
    names = {
        record["file_name"].decode(): [data_set.manifest.categories[label].name for label in record["labels"]]
        for record in data_set["train"]
    }
    assert names == {"inner/ants/2.jpg": ["ant"], "inner/bees/1.jpg": ["bee"], "ants/2.jpg": ["ant"]}
    assert data_set.manifest.splits["train"].images.rows == 3


@pytest.mark.parametrize(
    ("sets", "fault"),
    [
        (lambda read: (read, read), "JoinDatasets joins a dict"),
        (lambda read: {"a": read}, "JoinDatasets joins a dict"),
        (lambda read: {"a": read, "b/c": read}, "name 'b/c' has a slash"),
        (lambda read: {"a": read, "..": read}, "name '..' has .. in it"),
        (lambda read: {"a": read, "b": read.labels}, "a PCollection of Sample is expected"),
    ],
)
def test_what_is_not_several_data_sets(sets, fault, coco):
    read = Pipeline() | ReadDataset(**coco)
    with pytest.raises(ConfigError, match=fault):
        sets(read) | JoinDatasets()


def test_read_samples_have_classes_of_their_own(coco, tmp_path, caplog):
    def renamed(one: Sample) -> Sample:
        return msgspec.structs.replace(one, objects=[msgspec.structs.replace(one.objects[0], category="shape")])

    with Pipeline() as p:
        read = p | ReadDataset(**coco)
        with_objects = beam.Filter(lambda one: one.objects)
        shapes = read.samples | with_objects | beam.Map(renamed)
        shapes | WriteDataset(tmp_path / "out", facts=read.facts, max_rejects=0.5)
    assert [category.name for category in open_data_set(tmp_path / "out").manifest.categories] == ["shape"]
    with pytest.raises(TooManyRejectsError), Pipeline() as p:
        p | ReadDataset(**coco) | with_objects | beam.Map(renamed) | WriteDataset(tmp_path / "lost")
    assert "Samples have 1 classes that the labels lack ('shape', for example)" in caplog.text


def test_elements_of_type_any_are_checked(coco, tmp_path):
    with Pipeline() as p:
        names = p | ReadDataset(**coco) | beam.Map(lambda one: one if one.image_id % 2 else one.file_name)
        names | WriteDataset(tmp_path / "out", max_rejects=1)
    assert open_data_set(tmp_path / "out").manifest.splits["train"].images.rejected["malformed_image"] > 5


@pytest.mark.parametrize("transform", [lambda folder: WriteDataset(folder / "out"), lambda _: Encode()])
def test_windows_are_refused_with_the_cure(transform, coco, tmp_path):
    timed = beam.Map(lambda one: beam.window.TimestampedValue(one, one.image_id))
    windows = Pipeline() | ReadDataset(**coco) | timed | beam.WindowInto(beam.window.FixedWindows(60))
    with pytest.raises(ConfigError, match=r"is in FixedWindows. Add beam.WindowInto\(beam.window.GlobalWindows\(\)\)"):
        windows | transform(tmp_path)
    windows | "Global" >> beam.WindowInto(beam.window.GlobalWindows()) | "Again" >> transform(tmp_path)


@pytest.mark.parametrize("transform", [lambda folder: WriteDataset(folder / "out"), lambda _: Encode()])
def test_samples_in_several_parts_are_refused(transform, tmp_path):
    p = Pipeline()
    often = {"trigger": Repeatedly(AfterCount(1)), "accumulation_mode": AccumulationMode.DISCARDING}
    fired = p | beam.Create([drawn_sample(1)]) | beam.WindowInto(beam.window.GlobalWindows(), **often)
    with pytest.raises(ConfigError, match=r"in windows with the trigger Repeatedly. Add beam.WindowInto\(beam.window"):
        fired | transform(tmp_path)
    fired | "Once" >> beam.WindowInto(beam.window.GlobalWindows()) | "Again" >> transform(tmp_path)
    stream = p | PeriodicImpulse(0, 3, 1) | beam.Map(drawn_sample).with_output_types(Sample)
    with pytest.raises(ConfigError, match="its input is unbounded"):
        stream | "Stream" >> transform(tmp_path)


def test_folders_of_splits_are_the_splits(sample, tmp_path, recordmill):
    classes = Path(sample.images).parent / "classes"
    for split in ("train", "val"):
        shutil.copytree(classes, tmp_path / "data" / split)
    assert recordmill("convert", tmp_path / "data", "--output", tmp_path / "command").code == 0
    with Pipeline() as p:
        p | ReadDataset(tmp_path / "data") | WriteDataset(tmp_path / "out", name="images")
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command")
    p = Pipeline()
    without = p | ReadDataset(tmp_path / "data") | beam.Map(lambda one: msgspec.structs.replace(one, split=""))
    without | WriteDataset(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"has no split, but the data set names its splits \(train, val\)"):
        p.run()


def test_groups_are_counted(sample, tmp_path):
    shares = {"train": 0.5, "val": 0.5}
    classes = Path(sample.images).parent / "classes"
    with Pipeline() as p:
        read = p | ReadDataset(classes, group_from="([0-9])[.]", split=shares)
        read | WriteDataset(tmp_path / "out", max_rejects=1)
    groups = [split.images.groups for split in open_data_set(tmp_path / "out").manifest.splits.values()]
    assert all(groups)
    assert sum(groups) <= 10


def test_problems_of_splits_are_warned_of(piped, tmp_path, caplog):
    samples = [drawn_sample(number, split="train") for number in range(4)]
    samples.append(msgspec.structs.replace(samples[0], file_name="copy.jpg", split="val"))
    samples[1] = drawn_sample(1, split="train", objects=samples[1].objects * 2)
    piped(samples, split={"train": 0.5, "val": 0.5})
    out = f"{tmp_path}/out"
    logged = [text.removeprefix(f"{out}: ") for text in caplog.messages if text.startswith(out)]
    assert logged[0].startswith("train: boxes equal to another of the same class and image 1; listed in problems-")
    assert logged[1].startswith("LEAKAGE: 1 image in several splits, exactly or nearly (1 of train, 1 of val)")
    assert f'Convert again with groups="{out}/duplicates.jsonl" and another output' in logged[1]
    assert [text.partition(";")[0] for text in logged[2:]] == [
        f"duplicates: {name}: 1 exact, 0 near" for name in ("train", "val")
    ]
    assert "split: of 5 images, train gets 80.0%, not 50.0%" in caplog.text


def test_removed_and_added_images_are_counted(sample, tmp_path):
    def changed(one: Sample) -> list[Sample]:
        twice = msgspec.structs.replace(one, file_name=f"again/{one.file_name}", image_id=None)
        return [one, twice] if one.split == "train" else [one] if one.image_id % 2 else []

    shares = {"train": 0.5, "val": 0.5}
    with Pipeline() as p:
        samples, labels, facts = p | ReadDataset(sample.images, instances=sample.instances, split=shares)
        samples | beam.FlatMap(changed) | WriteDataset(tmp_path / "out", labels, facts, split=shares, max_rejects=1)
    for split in open_data_set(tmp_path / "out").manifest.splits.values():
        assert split.images.rows == split.images.accounted
        assert split.annotations.rows == split.annotations.accounted
    train, val = (open_data_set(tmp_path / "out").manifest.splits[name] for name in shares)
    added = {rows.path: (rows.images, rows.annotations) for rows in train.inputs}["the pipeline"]
    assert added[0] == 19  # as many as were read, of which one does not decode
    assert train.images.written == 2 * 19 - 2
    assert added[1] > 0
    assert (train.images.removed, train.annotations.removed) == (0, 0)
    assert val.images.removed > 0


def test_negative_areas_are_warned_of_once(tmp_path, caplog):
    draw_jpeg(tmp_path / "a.jpg")
    file = write_coco(tmp_path, [image_row(1, "a.jpg")], [annotation(1, 1, area=-1)], CATEGORIES)
    with Pipeline() as p:
        samples, labels, facts = p | ReadDataset(str(tmp_path), instances=str(file))
        samples | WriteDataset(tmp_path / "out", labels, facts)
    assert caplog.text.count("negative area") == 1
    assert "type hint" not in caplog.text  # Beam warns of ours that it does not understand


def test_samples_of_ones_own(piped, caplog):
    good = [drawn_sample(number, captions=["a"], class_name="dog") for number in range(8)]
    good.append(drawn_sample(8, objects=[SampleObject(" ", (1, 2, 3, 4), area_px2=-1)]))
    bad = [Sample("none.jpg", objects=[SampleObject("cat", (1, 2, 3, 4))] * 2)]
    bad.append(drawn_sample(9, objects=[SampleObject("cat", (1, 2, 3)), SampleObject("cat", (1, 2, 3, 4))]))
    data = piped([*good, *bad], captions=False, max_rejects=0.5)
    assert len(data["train"]) == 10
    split = data.manifest.splits["train"]
    assert split.images.rejected == {"malformed_image": 1}
    assert (split.annotations.rejected, split.annotations.of_rejected_images) == ({"malformed_box": 1}, 2)
    assert split.annotations.objects == 10
    assert [category.name for category in data.manifest.categories] == [" ", "cat"]
    assert "1 of 2 classes have a blank name" in caplog.text
    assert "some objects have a negative area" in caplog.text
    assert "Samples have captions, which is not stored in layout detection. Give captions=True" in caplog.text
    assert "Samples have class_name, which is not stored in layout detection: the layout has no feature" in caplog.text


def _classes(data) -> list[str]:
    return [category.name for category in data.manifest.categories]


def _classified(number: int, **fields) -> Sample:
    return drawn_sample(number, class_name=f"class {number % 2}", **{"objects": (), **fields})


@pytest.mark.parametrize(
    ("samples", "options", "layout"),
    [
        ([_classified(number) for number in range(4)], {}, "classification"),
        ([_classified(number) for number in range(4)], {"layout": "detection"}, "detection"),
        ([_classified(number) for number in range(4)], {"captions": True}, "detection"),
        ([_classified(0, captions=["a"])], {}, "detection"),
        ([_classified(0, tags=["a"])], {}, "detection"),
        ([_classified(0), drawn_sample(1)], {}, "detection"),
        ([drawn_sample(1, objects=())], {}, "detection"),
    ],
)
def test_layout_follows_what_samples_have(samples, options, layout, piped, tmp_path):
    data = piped(samples, expected=layout, **options)
    assert data.manifest.splits["train"].recipe.layout == layout
    assert len(data["train"]) == len(samples)
    if layout == "classification":
        assert _classes(data) == ["class 0", "class 1"]
        with pytest.raises(ConfigError, match="is unknown before the pipeline runs"):
            piped(samples)
        piped([drawn_sample(1)], expected="detection", overwrite=True)
    encoded = Pipeline()
    records = encoded | beam.Create(samples) | Encode(**options)
    key = {"classification": b"image/class/text", "detection": b"image/object/bbox/xmin"}[layout]
    assert_that(records | beam.Map(lambda record: key in record), equal_to([True] * len(samples)))
    encoded.run()


def test_objects_of_class_folders_are_written(sample, tmp_path):
    def with_box(one: Sample) -> Sample:
        return msgspec.structs.replace(one, class_name=None, objects=[SampleObject(one.class_name, (1, 2, 3, 4))])

    classes = Path(sample.images).parent / "classes"
    with Pipeline() as p:
        p | ReadDataset(classes) | beam.Map(with_box) | WriteDataset(tmp_path / "out")
    data = open_data_set(tmp_path / "out")
    assert data.manifest.layout == "detection"
    assert data.manifest.splits["train"].annotations.objects == len(data["train"]) > 5


def test_two_writers_of_one_split_are_refused(tmp_path):
    p = Pipeline()
    samples = p | beam.Create([drawn_sample(1)])
    samples | "WriteCats" >> WriteDataset(tmp_path / "out", split={"train": 0.5, "val": 0.5})
    for name in ("samples", "other"):
        with pytest.raises(ConfigError, match="out/: WriteCats of this pipeline writes the split val there"):
            samples | f"Write{name}" >> WriteDataset(f"{tmp_path}/./out/", split="val", name=name)
    samples | "WriteTest" >> WriteDataset(tmp_path / "out", split="test")
    Pipeline() | beam.Create([drawn_sample(1)]) | WriteDataset(tmp_path / "out", split="train=0.5,val=0.5")


def test_names_that_a_pipeline_makes_equal_end_job(sample, tmp_path):
    def shortened(one: Sample) -> Sample:
        return msgspec.structs.replace(one, file_name=Path(one.file_name).name)

    folder = Path(sample.images).parent / "classes"
    names = ("circle/1.png", "square/1.png")
    for name in names:
        shutil.copy(next((folder / name).parent.glob("*")), tmp_path / name.replace("/", "-"))
        (tmp_path / "data" / name).parent.mkdir(parents=True)
        shutil.copy(tmp_path / name.replace("/", "-"), tmp_path / "data" / name)
    p = Pipeline()
    p | ReadDataset(tmp_path / "data") | beam.Map(shortened) | WriteDataset(tmp_path / "out")
    with pytest.raises(CollidingImagesError, match=r"two Samples have the same name '1\.png', and image_id"):
        p.run()
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_file_of_two_image_ids_is_written_twice(tmp_path):
    draw_jpeg(tmp_path / "a.jpg")
    file = write_coco(tmp_path, [image_row(1, "a.jpg"), image_row(2, "a.jpg")], [annotation(1, 1)], CATEGORIES)
    with Pipeline() as p:
        p | ReadDataset(str(tmp_path), instances=str(file)) | WriteDataset(tmp_path / "out")
    assert len(open_data_set(tmp_path / "out")["train"]) == 2


def test_copies_are_dropped(piped):
    samples = [drawn_sample(1), msgspec.structs.replace(drawn_sample(1), file_name="copy.jpg"), drawn_sample(2)]
    data = piped(samples, duplicates="drop")
    assert len(data["train"]) == 2
    assert data.manifest.splits["train"].images.rejected == {"duplicate": 1}


def test_two_samples_of_one_key_end_job(piped):
    with pytest.raises(CollidingImagesError, match=r"two Samples have the same name '1\.jpg'"):
        piped([drawn_sample(1), drawn_sample(1, captions=["other"])])


def test_element_no_sample_is_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match="the input is of str, and a PCollection of Sample is expected"),
        Pipeline() as p,
    ):
        p | beam.Create(["a.jpg"]) | WriteDataset(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_is_not_the_data_that_is_read(sample):
    data = Path(sample.images).parent / "classes"
    with pytest.raises(ConfigError, match=f"^output {data} is data, too\\. Give another folder$"):
        Pipeline() | ReadDataset(data) | WriteDataset(data)


def test_output_is_not_the_folder_of_images_that_is_read(coco, sample):
    with pytest.raises(
        ConfigError, match=f"^output {sample.images} is a folder of images, too\\. Give another folder$"
    ):
        Pipeline() | ReadDataset(**coco) | WriteDataset(sample.images)


def test_exchanged_labels_and_facts_are_refused(sample, tmp_path):
    p = Pipeline()
    samples, labels, facts = p | ReadDataset(sample.images, instances=sample.instances)
    with pytest.raises(ConfigError, match="labels is of Facts, and a PCollection of LabelMap is expected"):
        samples | WriteDataset(tmp_path / "out", labels=facts, facts=labels)


def test_a_sample_is_no_key():
    with pytest.raises(ValueError, match="deterministic"), Pipeline() as p:
        p | beam.Create([(drawn_sample(1), 1)]).with_output_types(tuple[Sample, int]) | beam.GroupByKey()


def test_output_that_holds_data_set(piped, tmp_path):
    samples = [drawn_sample(number) for number in range(4)]
    piped(samples)
    before = shard_bytes(tmp_path / "out")
    with pytest.raises(ConfigError, match="Give another output, or overwrite=True"):
        piped(samples)
    with pytest.raises(ConfigError, match="Add overwrite=True to replace it"):
        piped(samples, seed=1)
    piped(samples[1:], overwrite=True)
    assert shard_bytes(tmp_path / "out").keys() == before.keys()
    assert shard_bytes(tmp_path / "out") != before


def test_run_that_was_stopped_goes_on(piped, tmp_path, caplog):
    samples = [drawn_sample(number) for number in range(8)] + [Sample("broken.jpg", data=b"\xff\xd8\xff broken")]
    with pytest.raises(TooManyRejectsError, match=r"more than max_rejects=0 allows.* by a larger max_rejects"):
        piped(samples, num_shards=3, max_rejects=0)
    caplog.set_level("INFO")
    piped(samples, num_shards=3, max_rejects=0.5)
    assert caplog.text.count("already exists") == 3


def test_options_in_words_of_python(tmp_path):
    with pytest.raises(ConfigError) as error:
        WriteDataset(tmp_path, num_shrads=4, masks="jpeg")
    assert str(error.value).split("; ") == [
        "unknown option 'num_shrads'. Did you mean num_shards?",
        "masks must be one of none, png, rle, both (got 'jpeg')",
    ]
    with pytest.raises(ConfigError, match='layout="keras" has no feature for captions'):
        WriteDataset(tmp_path, layout="keras", captions=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "absent"}, "absent: no such file or folder"),
        ({"images": "absent", "instances": "a.json"}, "images absent: no such folder; instances a.json: no such file"),
        ({"data": ".", "instnaces": "a.json"}, "unknown option 'instnaces'. Did you mean instances?"),
        ({"data": ".", "images": "images", "instances": "a.json"}, ". and images images both name the images. Give"),
        ({}, "data is missing: the folder, .zip or file of the data set"),
        ({"data": ".", "format": "yollo"}, "Did you mean yolo?"),
        ({"data": ".", "format": "yolo", "voc_origin": "1"}, "voc_origin is an option of voc; format is yolo"),
        (
            {"data": ".", "format": "yolo", "num_shards": 2},
            "num_shards is an option of WriteDataset, not of ReadDataset",
        ),
        ({"data": "rows.csv"}, "rows.csv is read as table"),
        ({"data": "rows.csv"}, "ReadFromCsv, ReadFromJson or ReadFromParquet of apache_beam.io"),
        (
            {"data": "rows.csv", "format": "table"},
            "format table is rows, not images. Read rows by Beam's own ReadFromCsv",
        ),
        (
            {"data": "yolo/images", "labels": "yolo/labels"},
            'Convert it by: recordmill.convert("yolo", "OUT", format="yolo")',
        ),
        ({"data": ".", "model": "a.keras"}, "Beam's own RunInference"),
    ],
)
def test_wrong_options_of_reading(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b\n1,2\n")
    draw_jpeg(tmp_path / "yolo" / "images" / "a.jpg")
    (tmp_path / "yolo" / "labels").mkdir()
    (tmp_path / "yolo" / "labels" / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "yolo" / "classes.txt").write_text("cat\n")
    with pytest.raises(ConfigError) as error:
        ReadDataset(**options)
    assert message in str(error.value)
    assert "--" not in str(error.value)


CAPTIONS, BOXES = [{"id": 1, "image_id": 1, "caption": "a"}], [annotation(1, 1)]


@pytest.mark.parametrize(
    ("annotations", "reading", "writing", "message"),
    [
        (CAPTIONS, {}, {}, r"annotations of .* which instances needs.* Give the file to captions, and"),
        (BOXES, {"fields": ["abc"]}, {}, "^fields abc: no object has this field"),
        (BOXES, {}, {"split": {"train": 0.999, "val": 0.001}}, "a larger share, or leave it out"),
        (BOXES, {}, {"duplicates": "fail"}, 'duplicates="fail" refuses .* duplicates="report"'),
    ],
)
def test_errors_of_workers_name_keywords(annotations, reading, writing, message, tmp_path):
    draw_jpeg(tmp_path / "a.jpg")
    shutil.copy(tmp_path / "a.jpg", tmp_path / "b.jpg")
    images = [image_row(1, "a.jpg"), image_row(2, "b.jpg")]
    file = write_coco(tmp_path, images, annotations, CATEGORIES)
    p = Pipeline()
    p | ReadDataset(tmp_path, instances=file, **reading) | WriteDataset(tmp_path / "out", **writing)
    with pytest.raises(RecordmillError, match=message) as error:
        p.run()
    assert "--" not in str(error.value)


def test_records_for_any_sink_are_shards(piped, tmp_path):
    samples = [drawn_sample(number, captions=["a"]) for number in range(20)] + [Sample("none.jpg")]
    data = piped(samples, captions=True, max_rejects=1)
    pipeline = Pipeline()
    placed = [msgspec.structs.replace(one, split="val") for one in samples]  # records do not have it
    encoded = pipeline | beam.Create(placed) | Encode(captions=True)
    assert_that(
        encoded,
        equal_to([record for path in shard_bytes(tmp_path / "out") for record in open_records(f"{data.path}/{path}")]),
    )
    result = pipeline.run()
    result.wait_until_finish()
    rejected = beam.metrics.MetricsFilter().with_namespace("recordmill")
    assert {each.key.metric.name: each.committed for each in result.metrics().query(rejected)["counters"]}
