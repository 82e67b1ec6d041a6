"""Whole jobs of `convert --add --sync` and `--prune`, compared with a conversion of the data as they are now."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

import recordmill as library
from recordmill.schemas.containers import CONTAINERS
from recordmill.schemas.dataset.manifest import SplitManifest
from recordmill.schemas.statistics import SplitStatistics
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.dataset.dataset_folder import read_manifest, read_statistics
from tests.literal_data import png, write_coco_set

COCO = "images --instances instances.json"


def pixels(seed: int) -> bytes:
    return png(np.random.default_rng(seed).integers(0, 256, (30, 40, 3), np.uint8))


@pytest.fixture
def coco_set(tmp_path, monkeypatch):
    """The literal COCO set with images that differ, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(write_coco_set(tmp_path)):
        Path("images", f"{name}.png").write_bytes(pixels(number))
    return tmp_path


def change(labels=(1, 4), images=(7,), gone=(), new=True) -> None:
    """Change boxes of some images and pixels of others, by id; let some go, and add one."""
    for file in map(Path, ("instances.json", "points.json")):
        document = json.loads(file.read_text())
        rows = document["annotations"]
        for row in rows:
            row["bbox"][2] -= 2.5 * (row["image_id"] in labels)
        if new:
            document["images"].append({"id": 99, "file_name": "new.png", "width": 40, "height": 30})
            rows += [{**row, "id": 1000 + row["id"], "image_id": 99} for row in rows[:8]]
            Path("images/new.png").write_bytes(pixels(99))
        for image in document["images"]:
            if image["id"] in images:
                Path("images", image["file_name"]).write_bytes(pixels(100 + image["id"]))
        document["images"] = [image for image in document["images"] if image["id"] not in gone]
        document["annotations"] = [row for row in rows if row["image_id"] not in gone]
        file.write_text(json.dumps(document))


def entry_of(out: str) -> SplitManifest:
    (entry,) = read_manifest(out).splits.values()
    return entry


def records_of(out: str) -> Counter[bytes]:
    manifest, contents = read_manifest(out), Contents(read_manifest(out).table, read_manifest(out).labels)
    files = (f"{out}/{shard.file}" for shard in entry_of(out).shards)
    return Counter(
        record for file in files for record in container_of(manifest.container).read(file, contents).records()
    )


def numbers_of(out: str) -> SplitStatistics:
    """Statistics without galleries, and without the ends of histograms, which are estimates after --sync."""
    (statistics,) = read_statistics(out, ["train"]).values()
    histograms = {
        name: msgspec.structs.replace(one, least=0, largest=0, p05=0, p95=0)
        for name, one in statistics.histograms.items()
    }
    findings = {name: msgspec.structs.replace(one, examples=()) for name, one in statistics.findings.items()}
    return msgspec.structs.replace(statistics, histograms=histograms, examples={}, findings=findings)


def replaced_files(out: str) -> list[str]:
    return sorted(file for file in entry_of(out).replaced_shards or () if Path(out, file).exists())


def case(flags: str):
    container = flags.partition("--container ")[2].split(" ")[0] or "tfrecord"
    return pytest.param(flags, marks=pytest.mark.skipif(not CONTAINERS[container].is_installed, reason="no extra"))


@pytest.mark.parametrize(
    "flags",
    [
        case("--num-shards 4"),
        case("--num-shards 4 --masks rle --keypoints points.json --gzip"),
        case("--examples-per-shard 7 --layout keras"),
        case("--num-shards 3 --layout tfds --container arrayrecord"),
        case("--num-shards 3 --container webdataset"),
        case("--num-shards 3 --container parquet --masks rle"),
        case("--num-shards 3 --tile 16"),
    ],
)
def test_data_set_is_that_of_the_changed_data(flags, coco_set, recordmill):
    options = [*COCO.split(), *flags.split()]
    assert recordmill("convert", *options, "-o", "out").code == 0
    change()
    done = recordmill("convert", *options, "-o", "out", "--add", "--sync")
    assert done.code == 0, done
    assert recordmill("convert", *options, "-o", "full").code == 0
    assert records_of("out") == records_of("full")
    assert numbers_of("out") == numbers_of("full")
    entry, expected = entry_of("out"), entry_of("full")
    for field in ("class_counts", "record_bytes", "findings"):
        assert getattr(entry, field) == getattr(expected, field), field
    old = replaced_files("out")
    assert old
    assert f"{len(old)} file" in done.out
    assert recordmill("verify", "out", "--check", "decode").code == 0
    assert len(library.open("out")["train"]) == sum(records_of("out").values())
    assert recordmill("convert", *options, "-o", "out", "--add", "--sync", "--prune").code == 0
    assert not any(Path("out", file).exists() for file in old)
    assert entry_of("out").replaced_shards is msgspec.UNSET
    assert recordmill("verify", "out", "--check", "decode").code == 0


def test_replaced_files_stay_until_the_next_run(coco_set, recordmill):
    options = [*COCO.split(), "--num-shards", "4", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    before = {path.name: path.read_bytes() for path in Path("out").glob("coco-train.tfrecord-*")}
    change(labels=(1,), images=(), new=False)
    assert recordmill("convert", *options, "--add", "--sync").code == 0
    (old,) = replaced_files("out")
    assert Path("out", old).read_bytes() == before[old]
    told = recordmill("verify", "out", "--check", "hashes")
    assert (told.code, "patterns such as coco-train.tfrecord-* match both" in told.out.lower()) == (0, True)
    change(labels=(), images=(), new=True)
    assert recordmill("convert", *options, "--add").code == 0
    assert (replaced_files("out"), Path("out", old).exists()) == ([], False)
    assert recordmill("verify", "out", "--check", "hashes").code == 0


def test_images_of_a_shard_that_all_changed_leave_no_copy(coco_set, recordmill):
    options = [*COCO.split(), "--num-shards", "1", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    change(labels=range(12), images=range(12), new=False)
    done = recordmill("convert", *options, "--add", "--sync", "--prune")
    assert done.code == 0, done
    (shard,) = entry_of("out").shards
    assert (shard.file, shard.examples) == ("coco-train.tfrecord-00001-of-00002", 12)
    assert [path.name for path in Path("out").glob("coco-train.tfrecord-*")] == [shard.file]
    assert recordmill("verify", "out").code == 0


def test_image_that_cannot_be_read_any_more_keeps_its_record(coco_set, recordmill):
    options = [*COCO.split(), "--num-shards", "2", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    before = records_of("out")
    change(labels=(1,), images=(), new=False)
    (name,) = [row["file_name"] for row in json.loads(Path("instances.json").read_text())["images"] if row["id"] == 1]
    Path("images", name).write_bytes(b"no image")
    done = recordmill("convert", *options, "--add", "--sync", "--max-rejects", "0.5")
    assert done.code == 0, done
    assert records_of("out") == before


def test_sync_twice_and_gone_images_stay(coco_set, recordmill):
    options = [*COCO.split(), "--num-shards", "3", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    change(labels=(1,), images=(), new=False)
    assert recordmill("convert", *options, "--add", "--sync").code == 0
    change(labels=(1, 4), images=(), new=False)
    assert recordmill("convert", *options, "--add", "--sync").code == 0
    assert recordmill("convert", *COCO.split(), "-o", "full").code == 0
    assert records_of("out") == records_of("full")
    assert entry_of("out").images.replaced == 3
    assert [run.replaced for run in entry_of("out").runs] == [1, 2]
    whole = Path("instances.json").read_text()
    change(labels=(), gone=(5, 6), images=(), new=False)
    done = recordmill("convert", *options, "--add", "--sync")
    assert done.code == 0, done
    assert records_of("out") == records_of("full")
    lines = list(map(json.loads, Path("out/changes-train.jsonl").read_text().splitlines()))
    assert [line["change"] for line in lines] == ["gone", "gone"]
    assert "2 images of the data set were not in DATA (changes-train.jsonl). Their records stay" in done.out
    Path("instances.json").write_text(whole)
    change(labels=(), images=(5,), new=False)
    done = recordmill("convert", *options, "--add", "--sync")
    assert "runs of --add, 1 of them in place of earlier records, " in done.out, done
    assert " has a newer copy, and stays until the next run of --add" in done.out, done
    assert "not in DATA" not in done.out + done.err


def test_summary_of_a_replanned_data_set(coco_set, recordmill):
    """The runs of --add wrote more shards than the data set has now."""
    options = [*COCO.split(), "--num-shards", "4", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    change(labels=(), images=range(12), new=False)
    assert recordmill("convert", *options, "--add", "--sync", "--num-shards", "5").code == 0
    assert [run.shards for run in entry_of("out").runs] == [5]
    replanned = recordmill("repack", "out", "replanned", "--replan")
    assert (replanned.code, "first new shard" in replanned.out) == (0, False), replanned
    assert "12 images, 12 of them in place of earlier records\n" in replanned.out
    again = recordmill("repack", "out", "replanned", "--replan")
    assert (again.code, "is already complete" in again.out) == (0, True), again


@pytest.mark.parametrize("flags", [case("--container tfrecord"), case("--container webdataset")])
def test_readers_return_each_image_once(flags, coco_set, recordmill):
    """The files of its old record, and gaps in the numbers of shards, are there."""
    options = [*COCO.split(), "--num-shards", "3", *flags.split()]
    assert recordmill("convert", *options, "-o", "out").code == 0
    change(labels=(1,), images=(4,))
    assert recordmill("convert", *options, "-o", "out", "--add", "--sync").code == 0
    assert recordmill("convert", *options, "-o", "full").code == 0
    assert len(replaced_files("out")) == 2
    full, split = library.open("full")["train"], library.open("out")["train"]
    expected = {int(example["image_id"]): example for example in full}
    numbers = range(len(split))
    hosts = (split.tensorflow(shard=(host, 2)).as_numpy_iterator() for host in (0, 1))
    for read in (
        split.numpy(threads=2),
        (split[number] for number in numbers),
        (split.grain()[number] for number in reversed(numbers)),
        (example for host in hosts for example in host),
    ):
        examples = {int(example["image_id"]): example for example in read}
        assert len(examples) == len(split) == len(expected) == 13
        for image_id, example in examples.items():
            for key, value in example.items():
                np.testing.assert_array_equal(value, expected[image_id][key], key)


@pytest.mark.skipif(not CONTAINERS["parquet"].is_installed, reason="no extra")
def test_the_card_names_no_replaced_file(coco_set, recordmill):
    """A loader that follows the card reads each record once, before and after --prune."""
    options = [*COCO.split(), "--num-shards", "3", "--container", "parquet", "-o", "out"]
    assert recordmill("convert", *options).code == 0
    change()
    assert recordmill("convert", *options, "--add", "--sync").code == 0
    shards = [shard.file for shard in entry_of("out").shards]
    assert len(list(Path("out").glob("coco-train-*.parquet"))) > len(shards)
    for prune in ((), ("--prune",)):
        done = recordmill("convert", *options, "--add", "--sync", *prune)
        assert (done.code, "Deleted 2 replaced shards" in done.out) == (0, bool(prune)), done
        (files,) = yaml.safe_load(Path("out/README.md").read_text().split("---")[1])["configs"][0]["data_files"]
        patterns = [files["path"]] if isinstance(files["path"], str) else files["path"]
        assert sorted(path.name for one in patterns for path in Path("out").glob(one)) == shards


def test_two_ids_of_one_file_are_two_images(coco_set, recordmill):
    document = json.loads(Path("instances.json").read_text())
    document["images"].append({**document["images"][1], "id": 77})
    document["annotations"] += [{**row, "id": 2000 + row["id"], "image_id": 77} for row in document["annotations"][:3]]
    Path("instances.json").write_text(json.dumps(document))
    options = [*COCO.split(), "--num-shards", "3"]
    assert recordmill("convert", *options, "-o", "out").code == 0
    change(labels=(1,), images=(), new=False)
    done = recordmill("convert", *options, "-o", "out", "--add", "--sync")
    assert done.code == 0, done
    assert recordmill("convert", *options, "-o", "full").code == 0
    assert records_of("out") == records_of("full")
    assert (entry_of("out").images.written, entry_of("out").images.replaced) == (13, 2)


def test_replanned_data_set_has_no_shards_of_runs(coco_set, recordmill):
    """The last run wrote more shards than there are then."""
    options = [*COCO.split(), "--num-shards", "4", "-o", "out"]
    assert recordmill("convert", *COCO.split(), "-o", "out").code == 0
    change(labels=(1, 4), images=(), new=False)
    written = recordmill("convert", *options, "--add", "--sync")
    assert (written.code, entry_of("out").runs[0].shards > 1) == (0, True)
    change(labels=(1,), images=(), new=False)
    assert "(changes-train.jsonl)" in recordmill("convert", *options, "--add").out
    for folder in ("new", "new"):
        repacked = recordmill("repack", "out", folder, "--replan")
        assert (repacked.code, "first new shard" in repacked.out) == (0, False), repacked
        assert "(changes-train.jsonl)" not in repacked.out
    assert [run.shards for run in entry_of("new").runs] == [0, 0]
