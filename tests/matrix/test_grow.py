"""Drawn data sets that grow by `convert --add` have the records of one conversion of everything."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import recordmill
from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import decode_manifest
from recordmill.transforms.containers.read_shards import ManifestShard
from tests.conftest import leave_pages_empty, manifest_of
from tests.engines.output import files_of
from tests.jobs.folders import whole_folder
from tests.literal_data import write_files
from tests.matrix.drawn_growth import FOLDER, Growth
from tests.matrix.drawn_shapes import CLASSES, DrawnSet, Picture, draw_picture
from tests.matrix.generated_sets import HEIGHT, WIDTH
from tests.matrix.test_shape import _FAULT, run

IDS = (
    "image/source_id",
    "image/id",
    "image/object/id",
    "image/tile/source_id",
    "objects/id",
    "captions/id",
    "id",
    "image_id",
    "image/number",
)
"""Features that are ids: they follow from the order of sets and runs."""
LABELS = (
    "image/object/class/label",
    "image/object/class/index",
    "image/object/category_id",
    "objects/label",
    "objects/category_id",
    "category_id",
    "class_index",
    "image/class/label",
    "image/class/index",
)
"""Features that are numbers of classes, by the order in which the classes came."""
WITH_OWN_IDS = ("coco", "cvat", "imagefolder", "tfcsv")
"""Formats whose ids of images or annotations may be those of another delivery."""


@pytest.mark.parametrize("seed", range(8))
def test_drawn_growth(seed, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    check_growth(seed, tmp_path)


def test_bucket_has_files_of_folder(gcs, tmp_path, monkeypatch):
    """Runs of --add and --sync write the same files to a bucket."""
    leave_pages_empty(monkeypatch)
    job = Growth(4, tmp_path)
    flags = [job.write(f"run {number}", sets) for number, sets in enumerate(job.deliveries)]
    changed = [change_image(job, job.deliveries[0][0]), *job.deliveries[0][1:]]
    flags.append([*job.write("sync", changed), "--sync"])
    for out in (str(tmp_path / "out"), "gs://bucket/out"):
        for number, command in enumerate(flags):
            finish(*command, "-o", out, *(["--add"] if number else []))
    local = {name: data for name, data in whole_folder(tmp_path / "out").items() if name != "report.html"}
    stored = {name.removeprefix("out/"): data for name, data in gcs.objects().items()}
    assert stored.keys() - {"report.html"} == local.keys()
    assert [name for name in local if stored[name] != local[name]] == []


def test_reader_that_is_open_stays_whole(tmp_path, monkeypatch):
    """A data set that was opened before runs of --add and --sync has its records, by number and in order."""
    leave_pages_empty(monkeypatch)
    job, out = Growth(3, tmp_path), tmp_path / "out"
    finish(*job.write("run 0", job.deliveries[0]), "-o", out)
    opened = recordmill.open(out)["train"]
    before = [row["image"].tobytes() for row in opened]
    finish(*job.write("run 1", job.up_to(1)), "-o", out, "--add")
    assert len(recordmill.open(out)["train"]) > len(before)
    (one,) = job.up_to(1)
    finish(*job.write("sync", [change_image(job, one)]), "-o", out, "--add", "--sync")
    assert [row["image"].tobytes() for row in opened] == before
    assert [opened[number]["image"].tobytes() for number in range(len(before))] == before


def test_one_percent_more_writes_at_most_two(tmp_path, monkeypatch):
    """Bytes besides metadata: 3 images more than 300."""
    leave_pages_empty(monkeypatch)
    draw = random.Random(0)
    pictures = {f"{'ab'[at % 2]}/{at}.png": draw_picture(draw, "", (WIDTH, HEIGHT)).data for at in range(303)}
    names = sorted(pictures)
    write_files(tmp_path / "data", {name: pictures[name] for name in names[3:]})
    finish("convert", tmp_path / "data", "-o", tmp_path / "out", "--num-shards", 4)
    before = {name: data for name, data in whole_folder(tmp_path / "out").items() if "tfrecord" in name}
    write_files(tmp_path / "data", {name: pictures[name] for name in names[:3]})
    finish("convert", tmp_path / "data", "-o", tmp_path / "out", "--add")
    after = {name: data for name, data in whole_folder(tmp_path / "out").items() if "tfrecord" in name}
    assert {name: after[name] for name in before} == before
    new = sum(len(data) for name, data in after.items() if name not in before)
    assert 0 < new <= 0.02 * sum(map(len, before.values()))


class FailedCommandError(Exception):
    """A command ended with an error: its text."""


def finish(*flags: object) -> str:
    """Run a command. Return its text."""
    code, text = run(*flags)
    assert not _FAULT.search(text), text
    if code:
        raise FailedCommandError(text)
    return text


def check_growth(seed: int, folder: Path) -> str:
    """Grow a drawn data set, and compare. Return the error of a job that both ways refuse."""
    job = Growth(seed, folder)
    last = len(job.deliveries) - 1
    rebuild, out = folder / "rebuild", folder / "out"
    try:
        finish(*job.write("everything", job.up_to(last)), "-o", rebuild)
        finish(*job.write("run 0", job.deliveries[0]), "-o", out)
    except FailedCommandError as error:
        return str(error)
    for number in range(1, last + 1):
        before = files_of(out)
        sets = job.up_to(number) if job.is_cumulative else job.deliveries[number]
        flags = [*job.write(f"run {number}", sets), "-o", out, "--add"]
        present = written_images(out) if job.is_cumulative else 0
        finish(*flags)
        check_files(out, before)
        check_counts(out)
        assert sum(split["images"].get("present", 0) for split in last_runs(out)) == present
        finish("verify", out, "--check", "decode")
        again = finish(*flags)
        assert "already" in again or re.search(r"added +nothing", again)  # label files beside images are read again
    check_equal(job, out, rebuild)
    check_replan(job, out, rebuild)
    return check_sync(job, out)


def last_runs(out: Path) -> Iterator[dict[str, Any]]:
    """Yield the last run of each split that has runs of --add."""
    for split in manifest_of(out)["splits"].values():
        if split.get("additions"):
            yield split["additions"][-1]


def written_images(out: Path) -> int:
    return sum(split["images"]["written"] for split in manifest_of(out)["splits"].values())


def shard_files(out: Path) -> dict[str, list[str]]:
    return {name: [shard["file"] for shard in split["shards"]] for name, split in manifest_of(out)["splits"].items()}


def check_files(out: Path, before: Mapping[str, str]) -> None:
    """Old shards are untouched, new names continue, and nothing else is there."""
    after = files_of(out)
    files = [file for of_split in shard_files(out).values() for file in of_split]
    assert len(set(files)) == len(files)
    is_keras = manifest_of(out)["layout"] == "keras"  # links have the number of shards in their names
    old = {name for name in before if is_shard(name) and name.endswith(".tfrec") == is_keras}
    assert {name: after.get(name) for name in old if name in files} == {name: before[name] for name in old}
    assert not [name for name in after if name.startswith(".recordmill")]
    manifest = manifest_of(out)
    if manifest["layout"] == "keras":
        return
    row = CONTAINERS[manifest.get("container", "tfrecord")]
    for split, names in shard_files(out).items():
        pattern = re.compile(row.file_pattern(re.escape(f"{manifest['name']}-{split}")))
        matches = [pattern.fullmatch(name) for name in names]
        assert all(matches), names
        indices = [int(match["index"]) for match in matches if match]
        assert len(set(indices)) == len(indices), names
        there = {name for name in after if pattern.fullmatch(name)}
        assert there == set(names)


def check_counts(out: Path) -> None:
    """Each row has one outcome."""
    document = decode_manifest((out / "manifest.json").read_bytes(), "")
    for split in document.splits.values():
        assert split.images.rows == split.images.accounted, split.images
        assert split.annotations.rows == split.annotations.accounted, split.annotations
        assert (split.images.tiles or split.images.written) <= split.examples or document.layout == "keras"
        for run_ in split.runs:
            assert run_.images.rows == run_.images.accounted, run_.images
            assert run_.annotations.rows == run_.annotations.accounted, run_.annotations


# Records


def read_records(folder: Path) -> dict[str, list[dict[str, list[Any]]]]:
    """Return the records of each split, in the order of the manifest, as TensorFlow parses them."""
    import tensorflow as tf

    manifest = decode_manifest((folder / "manifest.json").read_bytes(), "")
    result: dict[str, list[dict[str, list[Any]]]] = {}
    for name, split in manifest.splits.items():
        records = result[name] = []
        for info in split.shards:
            shard = ManifestShard(
                str(folder / info.file), name, info, manifest.table, manifest.labels, manifest.container
            )
            for record in shard.reader().records():
                features = tf.train.Example.FromString(record).features.feature
                records.append(
                    {
                        n: list(getattr(f, f.WhichOneof("kind")).value)
                        for n, f in features.items()
                        if f.WhichOneof("kind")
                    }
                )
    return result


def glob_records(folder: Path) -> Counter[bytes]:
    """Return the records of TFRecord files that the pattern of names matches."""
    import tensorflow as tf

    records: Counter[bytes] = Counter()
    for path in folder.glob("*.tfrec*"):
        if path.is_symlink() or path.suffix == ".idx":
            continue
        records.update(tf.data.TFRecordDataset(str(path), "GZIP" if path.suffix == ".gz" else "").as_numpy_iterator())
    return records


def without_ids(record: Mapping[str, list[Any]], names: Mapping[int, str] | None) -> str:
    """Return a text of a record that is equal if all but ids are; objects in any order.

    Args:
        names: Names of category ids, if numbers of classes may differ.
    """
    values = {name: list(of) for name, of in record.items() if name not in IDS}
    if names is not None:
        for name in LABELS:
            if name in values and name.endswith("category_id"):
                values[name] = [names[id_] for id_ in values[name]]
            else:
                values.pop(name, None)
        for name in [*values]:
            if "segmentation" in name or "category_mask" in name:
                del values[name]
    for prefix, counted in (("image/object/", "image/object/area"), ("objects/", "objects/area")):
        number = len(values.get(counted, ()))
        own = [name for name in sorted(values) if name.startswith(prefix)]
        objects = []
        for at in range(number):
            objects.append(tuple(tuple(values[n][at * (k := len(values[n]) // number) : (at + 1) * k]) for n in own))
        for name in own:
            del values[name]
        values[prefix] = sorted(map(repr, objects))
    return repr(sorted(values.items()))


def check_equal(job: Growth, out: Path, rebuild: Path) -> None:
    """The sets of records are equal."""
    grown, whole = read_records(out), read_records(rebuild)
    drops = job.options.get("duplicates") == "drop"
    manifests = [manifest_of(folder) for folder in (out, rebuild)]
    classes = [{kind["id"]: kind["name"] for kind in manifest["categories"]} for manifest in manifests]
    if not drops:
        assert set(classes[0].values()) == set(classes[1].values())
    if job.has_all_classes and not drops:
        assert classes[0] == classes[1]
    assert {name for name, of in grown.items() if of} == {name for name, of in whole.items() if of}
    for split, records in whole.items():
        images = [
            Counter(str(r.get("image/encoded") or r["image"]) for r in of) for of in (grown.get(split, []), records)
        ]
        if drops:
            continue
        assert images[0] == images[1], split
        if is_exact(job, classes):
            assert Counter(map(repr_of, grown.get(split, []))) == Counter(map(repr_of, records)), split
        names = classes if classes[0] != classes[1] else (None, None)
        one, two = (
            Counter(without_ids(record, of) for record in of_split)
            for of, of_split in zip(names, (grown.get(split, []), records), strict=True)
        )
        assert one == two, (split, [*(one - two)][:1], [*(two - one)][:1])
    if manifests[0].get("container", "tfrecord") == "tfrecord":
        listed = sum(shard["examples"] for split in manifests[0]["splits"].values() for shard in split["shards"])
        by_pattern = glob_records(out)
        assert by_pattern.total() == listed
        if is_exact(job, classes) and not drops:
            assert by_pattern == glob_records(rebuild)
    if not drops:
        for key in ("written", "without_record", "without_tile", "tiles", "empty_tiles"):
            sums = [sum(s["images"].get(key, 0) for s in m["splits"].values()) for m in manifests]
            is_read_again = key in ("without_tile", "empty_tiles")  # of no shard: each run counts them
            assert sums[0] == sums[1] or (is_read_again and sums[0] > sums[1]), (key, sums)
        for key in ("objects", "captions", "stuff", "panoptic"):
            sums = [sum(s["annotations"].get(key, 0) for s in m["splits"].values()) for m in manifests]
            assert sums[0] == sums[1], (key, sums)
        for name, split in manifests[1]["splits"].items():
            grown_counts = manifests[0]["splits"].get(name, {"class_counts": []})["class_counts"]
            assert by_name(grown_counts, classes[0]) == by_name(split["class_counts"], classes[1])


def by_name(counts: Sequence[int], classes: Mapping[int, str]) -> dict[str, int]:
    return {name: count for name, count in zip(classes.values(), counts, strict=False) if count}


def repr_of(record: Mapping[str, list[Any]]) -> str:
    return repr(sorted(record.items()))


def is_exact(job: Growth, classes: Sequence[Mapping[int, str]]) -> bool:
    """True if ids of images and annotations must be those of the rebuild, too."""
    if [*classes[0].items()] != [*classes[1].items()]:
        return False
    kinds = [one.format for one in job.sets]
    return not job.is_joined and (kinds[0] not in WITH_OWN_IDS[1:] or len(job.deliveries) == 1)


# Plan anew


def check_replan(job: Growth, out: Path, rebuild: Path) -> None:
    """`repack --replan` writes the shards of the rebuild."""
    replanned = out.parent / f"{out.name} of {rebuild.name}"
    finish("repack", out, replanned, "--replan", "--progress", "none")
    finish("verify", replanned, "--check", "decode")
    if job.options.get("duplicates") == "drop":
        return
    classes = [{kind["id"]: kind["name"] for kind in manifest_of(of)["categories"]} for of in (out, rebuild)]
    one, two = shard_files(replanned), shard_files(rebuild)
    assert {name: of for name, of in one.items() if of} == {name: of for name, of in two.items() if of}
    if is_exact(job, classes):
        for files in two.values():
            for file in files:
                assert (replanned / file).read_bytes() == (rebuild / file).read_bytes(), file


# Other versions of images


def check_sync(job: Growth, out: Path) -> str:
    """An image with other bytes ends the job; --sync writes it, and other labels, and lists what is gone."""
    last = len(job.deliveries) - 1
    sets = [*job.up_to(last)]
    draw = job.draw
    if job.options.get("duplicates") == "drop":
        return "drops copies"
    at = draw.randrange(len(sets))
    labelled = [*sets]
    labelled[at] = one = change_labels(job, sets[at])
    has_change = one != sets[at]
    written = {name for split in read_records(out).values() for r in split for name in names_of(r)}
    flags = [*job.write("labels", labelled), "-o", out]
    finish(*flags, "--add")
    changed = sum(run_["images"].get("changed", 0) for run_ in last_runs(out))
    has_ids_as_fields = "fields" in job.options and any(one.format == "cvat" for one in sets)  # numbered anew
    if not (job.class_map or job.options.get("tile") or has_ids_as_fields):
        pairs = zip(sets[at].pictures, one.pictures, strict=True)
        names = [one.name_of(old) for old, new in pairs if old is not new]
        assert changed == sum(any(file.endswith(name) for file in written) for name in names), names
        assert changed <= has_change
    redrawn = [*labelled]
    redrawn[at] = other = change_image(job, one)
    code, text = run(*job.write("images", redrawn), "-o", out, "--add")
    (name,) = (new.name for old, new in zip(one.pictures, other.pictures, strict=True) if old.data != new.data)
    was_written = any(file.endswith(name) for file in written)
    assert code == (2 if was_written else 0), text
    assert not _FAULT.search(text), text
    gone = redrawn[at].pictures[-1] if len(redrawn[at].pictures) > 2 else None
    here = [*redrawn]
    if gone:
        here[at] = redrawn[at]._replace(pictures=redrawn[at].pictures[:-1])
    before = files_of(out)
    try:
        finish(*job.write("sync", here), "-o", out, "--add", "--sync")
    except FailedCommandError as error:
        return str(error)
    check_counts(out)
    finish("verify", out, "--check", "decode")
    everything = [*redrawn]
    finish(*job.write("everything of sync", everything), "-o", out.parent / "rebuild of sync")
    check_synced(job, out, out.parent / "rebuild of sync")
    check_replan(job, out, out.parent / "rebuild of sync")
    finish(*job.write("again", here), "-o", out, "--add", "--sync", "--prune")
    there, listed = files_of(out), {file for of in shard_files(out).values() for file in of}
    replaced = {name for name in there if name not in listed and is_shard(name) and not (out / name).is_symlink()}
    assert not replaced, (replaced, before.keys())
    finish("verify", out, "--check", "decode")
    return ""


def is_shard(name: str) -> bool:
    return "/" not in name and (".tfrec" in name or ".array_record" in name or name.endswith((".tar", ".parquet")))


def names_of(record: Mapping[str, list[Any]]) -> list[str]:
    for key in ("image/tile/file_name", "image/filename", "path"):
        if record.get(key):
            return [value.decode() for value in record[key]]
    return []


def check_synced(job: Growth, out: Path, rebuild: Path) -> None:
    grown, whole = read_records(out), read_records(rebuild)
    classes = [{kind["id"]: kind["name"] for kind in manifest_of(of)["categories"]} for of in (out, rebuild)]
    names = classes if classes[0] != classes[1] else (None, None)
    for split, records in whole.items():
        one, two = (
            Counter(without_ids(record, of) for record in of_split)
            for of, of_split in zip(names, (grown.get(split, []), records), strict=True)
        )
        assert one == two, (split, [*(one - two)][:1], [*(two - one)][:1])


def change_labels(job: Growth, one: DrawnSet) -> DrawnSet:
    """Return the set with another class of an object; the same set if there is none."""
    if one.format == FOLDER:
        return one
    labels = sorted({thing.label for picture in one.pictures for thing in picture.things} - {CLASSES[0]})
    for at, picture in enumerate(one.pictures[1:], 1):
        for place, thing in enumerate(picture.things):
            for label in labels:
                new = thing._replace(label=label, points=())
                if (
                    thing.label != CLASSES[0]
                    and label != thing.label
                    and not any((other.label, other.box) == (label, thing.box) for other in picture.things)
                ):
                    things = (*picture.things[:place], new, *picture.things[place + 1 :])
                    return replace_picture(one, at, picture._replace(things=things))
    return one


def change_image(job: Growth, one: DrawnSet) -> DrawnSet:
    at = job.draw.randrange(len(one.pictures) - 1) if len(one.pictures) > 1 else 0
    picture = one.pictures[at]
    height, width = picture.pixels.shape[:2]
    new = draw_picture(job.draw, picture.name, (width, height))
    return replace_picture(one, at, picture._replace(pixels=new.pixels, data=new.data))


def replace_picture(one: DrawnSet, at: int, picture: Picture) -> DrawnSet:
    return one._replace(pictures=(*one.pictures[:at], picture, *one.pictures[at + 1 :]))
