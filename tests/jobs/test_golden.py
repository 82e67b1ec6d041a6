"""Everything that each verb prints for odd inputs, in one golden file per verb, and per format of `convert`."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import annotation, image_row
from tests.golden import assert_golden
from tests.jobs.folders import draw, draw_all, write_table
from tests.transforms.show.records import example, image_bytes, write

VARIABLE = (
    (re.compile(r"starting TensorFlow\n"), ""),  # only once in a process
    (re.compile(r"That took .*"), "That took TIME"),  # of which steps how long, in the order of their beginning
    (re.compile(r"(?<!\w)\d[\d,.]* (bytes|kB|MB|GB)\b"), "SIZE"),
    (re.compile(r"\b\d+(\.\d+)? (s|seconds?|minutes?)\b"), "TIME"),
    (re.compile(r"[0-9a-f]{64}"), "SHA256"),
    (re.compile(r"(at byte |\"bytes\": )\d[\d,]*"), r"\1N"),
)
COCO = "convert --images s/images --instances odd.json --output out --split train=0.5,val=0.5 --num-shards 12"
FOLDER = "convert pets --format folder --output out --num-shards 2 --max-rejects 1"
LABELS = "convert pets --format folder --labels labels.csv --output labelled"
TEXTS = "convert --images s/images --captions s/annotations/captions.json --caption-text counts --output texts"
EMBED = "convert pets --format folder --model mobilenet-v2 --weights none --max-rejects 1 --output out"
TABLE = "convert s/objects.csv --format table --output out"
COMMANDS = {
    "coco": [
        "convert --images s/imags --images s/empty --instances s/annotations/instance.json --instances s --output out",
        "convert --format coco --images s/images --num-shards 4 --shard-size 1MB --boxes cut --ouput out",
        "convert --images s/images --captions s/annotations/instances.json --output out",
        "convert --images s/classes --instances s/annotations/instances.json --output out",
        "convert --images s/images --instances corners.json --output out",
        "convert --images s/images --instances s/annotations/instances.json --output out -- --direct_num_worker=2",
        f"{COCO} --dry-run --max-rejects 1",
        COCO,
        f"{COCO} --max-rejects 1",
        f"{COCO} --max-rejects 1",
        f"{COCO} --max-rejects 1 --seed 1",
        "verify out",
        f"{TEXTS} --min-df 99",
        f"{TEXTS} --max-rejects 0.2 --dry-run",
        f"{TEXTS} --max-rejects 0.2",
    ],
    "folder": [
        "convert empty --format folder --output out --split train,val",
        "convert empty --format folder --output out",
        f"{FOLDER} --split train=0.5,val=0.4",
        f"{FOLDER} --split val=1/1000000,train=999999/1000000",
        f"{FOLDER} --classes zebra",
        f"{FOLDER} --split train=0.5,val=0.5 --stratify --dry-run",
        f"{FOLDER} --split train=0.5,val=0.5 --stratify",
        f"{FOLDER} --split train=0.5,val=0.5",
        LABELS,
        f"{LABELS} --max-rejects 1",
        "convert pets --format folder --labels labels.csv --output asked --max-rejects 1 --classes 1,2",
    ],
    "table": [
        "convert nothing-*.csv --format table --output out",
        f"{TABLE} --label nothing",
        f"{TABLE} --text-column caption --split train=0.5,val=0.5",
        f"{TABLE} --images s/images --output out",
        f"{TABLE} --label shape --split train=0.5,val=0.5 --text-column caption --text counts --key image --dry-run",
        f"{TABLE} --writer beam --dry-run",
        "convert s/objects.csv --format table --key image --split train --output keyed",
        "convert odd.csv --format table --schema schema.json --output odd",
        "convert odd.csv --format table --schema schema.json --output odd --max-rejects 1",
        "convert s/objects.csv --format table --images s/images --image-column image --output pictures",
        "convert s/objects.csv --format table --images s/images --image-column image --output pictures --max-rejects 1",
    ],
    "embed": [f"{EMBED} --input-size big --batch 0", f"{EMBED} --input-size 32x32 --dry-run"],
    "verify": [
        "verify s",
        "verify whole",
        "verify whole --check hashes --sample 0.5",
        "verify damaged",
        "verify whole --recompute 1",
    ],
    "extract": [
        "extract s new",
        "extract whole new",
        "extract whole new",
        "extract damaged some",
        "extract kinds kind",
        "extract kinds yolo --as yolo",
    ],
    "show": [
        "show whole --count 1",
        "show whole --find star",
        "show whole --id 1 --find a=b",
        "show whole --save x.png --count 2",
        "show whole --save x.png --json",
        "show whole --save s/objects.csv",
        "show whole --save empty.png",
        "show rows.tfrecord --save a.png",
        "show rows.tfrecord --index 1 --save a.png",
        "show damaged --count 2",
        "show damaged --id nothing --json",
        "show s/objects.csv",
    ],
    "report": ["report s", "report whole", "report damaged"],
    "index": ["index", "index whole", "index damaged/coco-train.tfrecord-00001-of-00003"],
    "sample": ["sample whole", "sample new --count 3", "sample newer -- --runner=FlinkRunner"],
}


@pytest.fixture
def inputs(sample, tmp_path, copy_converted, of_every_kind, monkeypatch) -> None:
    """In the working folder: the sample as `s`, odd inputs, data sets: `whole`, `damaged`, `kinds`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    shutil.copytree(Path(sample.images).parent, "s")
    document = json.loads(Path(sample.instances).read_text())
    odd = [annotation(9001, 1), annotation(9002, 1, category_id=99), {"id": 9003}, annotation(9001, 3, (1, 2, -3, 4))]
    rows = [image_row(2, "../x.jpg"), image_row(None, "x"), image_row(document["images"][0]["id"], "again.jpg")]
    categories = [*document["categories"], {"id": 77, "name": "star"}, {"id": 0, "name": "7"}]
    corners = [annotation(id_, row["id"], (50, 40, 70, 60)) for id_, row in enumerate(document["images"])]
    Path("corners.json").write_text(json.dumps(document | {"annotations": corners}))
    document |= {"images": document["images"] + rows, "categories": categories, "extra": []}
    Path("odd.json").write_text(json.dumps(document | {"annotations": document["annotations"] + odd}))
    Path("empty").mkdir()
    Path("empty.png").mkdir()
    draw_all(Path("pets"), [f"{name}/{number}.jpg" for name in ("Cat", "Dog", "Cat/Dog", "Cat/Cat") for number in "12"])
    draw(Path("pets/none.png"), 1)
    Path("pets/notes.txt").write_text("no image")
    labels = [("path", "label", "split"), ("Cat/1.jpg", "1", "train"), ("Dog/1.jpg", "", "val"), ("x.jpg", "2", "val")]
    write_table(
        Path("labels.csv"),
        [
            *labels,
            ("Dog/2.jpg", "2", "val"),
            ("Dog/2.jpg", "1", "val"),
            ("../x", "1", "b d"),
            ("Dog/1.jpg", "2", "val"),
        ],
    )
    Path("odd.csv").write_bytes(b"a,b\n1,x\n2\n3,\xff\nfour,y\n5,z\n1e99,w\n")
    columns = [{"name": "a", "feature": "a", "type": "float32"}, {"name": "b", "feature": "b", "type": "bytes"}]
    Path("schema.json").write_text(json.dumps({"columns": columns}))
    write(Path("rows.tfrecord"), example(a=[1]), example(image__encoded=[image_bytes(400, 300)[:-300]], height=[1]))
    shutil.copytree(of_every_kind, "kinds")
    copy_converted(Path("whole"), "--num-shards", 3)
    shutil.copytree("whole", "damaged")
    cut, flipped, *_ = sorted(Path("damaged").glob("coco-*"))
    cut.write_bytes(cut.read_bytes()[:-100])
    flipped.write_bytes(b"\1" + flipped.read_bytes()[1:])
    Path("damaged/labels.csv").write_text("1,cat\n")
    Path("damaged/coco-train.tfrecord-00004-of-00007").touch()


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.usefixtures("inputs")
def test_all_that_a_verb_prints(verb, recordmill, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr("recordmill.launch.terminal.progress._PLAIN_SECONDS", 600.0)  # slow runs print progress
    found = []
    for command in COMMANDS[verb]:
        caplog.clear()
        outcome = recordmill(*command.split())
        warnings = [f"warning: {record.getMessage()}" for record in caplog.records if "recordmill" in record.name]
        lines = [*outcome.out.splitlines(), *warnings, *outcome.err.splitlines()]
        found.append("\n".join([f"$ {command}", *lines, f"exit code {outcome.code}", ""]))
    text = "\n".join(found).replace(str(tmp_path), "TMP")
    for pattern, name in VARIABLE:
        text = pattern.sub(name, text)
    assert_golden(verb, text)
