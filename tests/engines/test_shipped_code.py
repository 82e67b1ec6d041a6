"""Workers that have our wheel and nothing else of ours run every step of both conversions."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import draw_jpeg, shard_bytes
from tests.engines.output import records_of
from tests.engines.worker_pool import Pool, running_pool, worker_environment
from tests.faults.warm_process import Command
from tests.jobs.folders import whole_folder, write_table

Words = list[str]
OUTPUTS = "--max-rejects 1 --num-shards"
EVERY_KIND = (
    "convert --instances {s.instances} --keypoints {s.keypoints} --captions {s.captions} --panoptic {s.panoptic}"
    " --panoptic-masks {s.panoptic_masks}"
)
COCO = "convert --images {s.images}"
JOBS = {
    "every kind, of a zip": f"{EVERY_KIND} --images {{zip}} --masks both --image-format jpeg"
    f" --caption-text tfidf --ngrams 1,2 {OUTPUTS} 40",
    "stuff without a list": f"{COCO} --instances {{s.instances}} --stuff {{s.stuff}} --image-info {{s.image_info}}"
    f" --no-list --categories square,circle --min-area 50 --no-crowd --boxes drop --max-side 100 {OUTPUTS} 1",
    "the stock writer": f"{EVERY_KIND} --images {{s.images}} --writer beam --masks png {OUTPUTS} 3",
    "keras": f"{COCO} --instances {{odd}} --layout keras --fields all --examples-per-shard 20 --max-rejects 0.2",
    "tfds": f"{COCO} --instances {{s.instances}} --panoptic {{s.panoptic}} --panoptic-masks {{s.panoptic_masks}} --gzip"
    " --layout tfds --match name --split train=0.6,val=0.4 --group-from ([0-9][0-9])[.] --max-rejects 0.2",
    "class folders, stratified": "convert {classes} --format folder --split train=0.5,val=0.25,test=0.25 --stratify"
    f" --groups {{groups}} {OUTPUTS} 2",
    "names by the stock writer": "convert {names} --format folder --label-from name --split train=0.5,val=0.5"
    f" --writer beam {OUTPUTS} 2",
    "a table with splits": f"convert {{classes}} --labels {{table}} --classes dog,cat --fields age {OUTPUTS} 3",
    "rows of a table": "convert {s.objects} --format table --label shape --key object --split train=0.6,val=0.4"
    " --stratify --num-shards 2",
    "rows with images": "convert {s.objects} --format table --images {s.images} --image-column image"
    f" --text-column caption --text tfidf --label shape {OUTPUTS} 2",
}


@pytest.fixture(scope="module")
def inputs(sample, tmp_path_factory) -> dict[str, object]:
    """Inputs of the jobs: the sample; its images in a .zip; its instances with fields, and one of no image; class
    folders, of files that can be read and files that cannot; the same where names begin with the class; groups; a table
    of path, label, split and age, one row of which names no file.
    """
    folder = tmp_path_factory.mktemp("inputs")
    classes, names = folder / "classes", folder / "names"
    rows = [("path", "label", "split", "age"), ("cat/none.jpg", "cat", "train", "")]
    for number in range(12):
        label = ("cat", "dog", "owl")[number % 3]
        draw_jpeg(classes / label / f"{number}.jpg", 20 + number, 30)
        draw_jpeg(names / f"{label}_{number}.jpg", 20 + number, 30)
        rows.append((f"{label}/{number}.jpg", label, "val" if number < 4 else "train", number or ""))
    (classes / "dog" / "cut.jpg").write_bytes((classes / "cat" / "0.jpg").read_bytes()[:300])
    (classes / "cat" / "notes.txt").write_text("no image")
    draw_jpeg(classes / "nowhere.jpg")
    draw_jpeg(names / "nothing.jpg")
    content = json.loads(Path(sample.instances).read_text())
    for number, row in enumerate(content["annotations"]):
        row |= {"score": number / 7} if number % 3 else {"attributes": {"path": [number] * (number % 4)}}
    content["annotations"].append({"id": 1, "category_id": 7, "bbox": [1, 1, 5, 5]})
    (folder / "odd.json").write_text(json.dumps(content))
    (folder / "groups.csv").write_text("file_name,group\ncat/0.jpg,1\ndog/1.jpg,1\n")
    files = {"odd": folder / "odd.json", "groups": folder / "groups.csv", "classes": classes, "names": names}
    files |= {"zip": shutil.make_archive(str(folder / "images"), "zip", sample.images)}
    return {"s": sample, "table": write_table(folder / "labels.csv", rows), **files}


def submit(arguments: Words, pool: Pool, log: Path) -> Command:
    """Submit a job from a separate process, which can be ended: Beam waits for ever for a worker that does not come."""
    flags = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL"]
    return Command([*arguments, "--", *flags, f"--environment_config={pool.endpoint}"], log).end()


@pytest.mark.parametrize("name", JOBS)
def test_same_data_set_as_in_process(pool, inputs, recordmill, tmp_path, name):
    shipped, out = tmp_path / "shipped", tmp_path / "out"
    job = JOBS[name].format(**inputs).split()
    command = submit([*job, "--output", str(shipped)], pool, tmp_path / "command")
    assert command.code == 0, f"{command}\n{pool.log.read_text()}"
    outcome = recordmill(*job, "--output", out)
    assert outcome.code == 0, outcome
    if "beam" in job:  # whose records are in other shards every time
        assert records_of(shipped) == records_of(out) != {}
    else:
        said, _, took = command.out.replace(str(shipped), str(out)).rpartition("That took ")
        here, _, took_here = outcome.out.rpartition("That took ")
        assert said == here
        assert re.fullmatch(r"[0-9.]+ s\n", took)  # the command only knows how long it waited
        assert "writing" in took_here
        assert shard_bytes(shipped) != {}
        assert whole_folder(shipped) == whole_folder(out)


def test_without_wheel_job_fails(inputs, tmp_path):
    python, log = worker_environment(tmp_path / "environment", None), tmp_path / "pool.log"
    with running_pool(python, log) as pool:
        words = [
            *JOBS["rows of a table"].format(**inputs).split(),
            "--output",
            str(tmp_path / "out"),
            "--progress",
            "none",
        ]
        command = submit(words, pool, tmp_path / "command")
    assert "ModuleNotFoundError: No module named 'recordmill'" in log.read_text()
    assert command.code == 1, command
    (line,) = command.err.splitlines()
    assert line.startswith("recordmill: ")
    assert "'recordmill'" in line
    assert shard_bytes(tmp_path / "out") == {}
    assert not (tmp_path / "out" / "manifest.json").exists()
