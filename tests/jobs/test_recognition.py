"""What `recordmill convert` recognises in data whose format is not named, and what that writes."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.choose_format import choose_conversion
from recordmill.pipelines.recognise import recognise, recognise_data, unwrap_folder
from tests.conftest import CATEGORIES, SHARED_DATA, annotation, image_row, manifest_of, shard_bytes, write_coco
from tests.jobs.folders import draw_all
from tests.jobs.test_image_table import file_rows
from tests.literal_data import jpeg, old_record, tfrecord, write_files

FORMATS = SHARED_DATA / "formats"


def found(*data: Path, **given: object) -> list[tuple]:
    """The formats that can read DATA, each with the values of options that name its inputs."""
    return [(name, match.inputs) for name, match in recognise_data([*map(str, data)], given)]


def formats(data: Path) -> list[str]:
    return [name for name, _ in recognise(str(data))]


def paths(*names: Path) -> list[str]:
    return [*map(str, names)]


def write_export(folder: Path, name: str = "instances_val2017.json", images: str = "val2017") -> Path:
    """A COCO export of one image, a.jpg. Returns the annotation file."""
    draw_all(folder / images, ["a.jpg"])
    (folder / "annotations").mkdir(exist_ok=True)
    file = write_coco(folder / "annotations", [image_row(1, "a.jpg", 20, 60)], [annotation(1, 1)], CATEGORIES)
    return file.rename(folder / "annotations" / name)


def write_csv(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]))
    return path


def test_recognised(tmp_path):
    coco = tmp_path / "coco"
    write_export(coco)
    assert found(coco) == [("coco", {"data": paths(coco)})]

    classes = draw_all(tmp_path / "classes", ["cat/a.jpg", "dog/a.jpg"])
    assert found(classes) == [("folder", {"data": paths(classes)})]

    named = draw_all(tmp_path / "named", ["a.jpg", "b.jpg"])
    labels = write_csv(named / "labels.csv", "file,label", "a.jpg,cat", "b.jpg,dog")
    assert found(named) == [("folder", {"data": paths(named), "labels": paths(labels)})]

    rows = tmp_path / "rows"
    rows.mkdir()
    for name in ("train-0", "train-1", "test-0"):
        pq.write_table(pa.Table.from_pylist(file_rows(1)), rows / f"{name}.parquet")
    assert found(rows) == [("table", {"data": paths(rows), "image_column": "image"})]


@pytest.mark.parametrize("row", [{"x": 1}, file_rows(1)[0]])
def test_folders_of_partitions_are_one_table(row, tmp_path):
    for name in ("label=cat", "label=dog"):
        (tmp_path / "hive" / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "hive" / name / "part-0.parquet")
        (tmp_path / "hive" / name / ".part-0.parquet.crc").touch()
    (tmp_path / "hive" / "_SUCCESS").touch()
    (match,) = found(tmp_path / "hive")
    files = paths(*(tmp_path / "hive" / f"label={name}" / "part-0.parquet" for name in ("cat", "dog")))
    columns = {"data": files, "image_column": "image", "label": "label"}
    assert match == ("table", columns if "image" in row else {"data": paths(tmp_path / "hive")})


VIA = '{"a.jpg7": {"filename": "a.jpg", "size": 7, "regions": []}}'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"boxes.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,9,9,cat,1,1,2,2\n"}, ["tfcsv"]),
        (
            {"a/set.ndjson": '{"type": "dataset", "class_names": ["cat"]}\n{"type": "image", "file": "a.jpg"}\n'},
            ["ndjson"],
        ),
        ({"set.json": '{"type": "dataset", "task": "detect", "class_names": {"0": "cat"}}\n'}, ["ndjson"]),
        (
            {
                "set.jsonl": '{"type": "dataset", "class_names": {"0": "cat", "1": "dog"}}\n'
                '{"type": "image", "file": "a.jpg", "annotations": {"boxes": [[0, 0.5, 0.5, 0.5, 0.5]]}}\n'
            },
            ["ndjson"],
        ),
        ({"import.jsonl": '{"imageGcsUri": "gs://b/a.jpg", "boundingBoxAnnotations": []}\n'}, ["vertex"]),
        ({"import.csv": "TRAINING,gs://b/a.jpg,cat,0.1,0.2,,,0.5,0.6,,\n"}, ["vertex"]),
        ({"boxes.csv": "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,0.1,0.2,0.5,0.6\n"}, ["tfcsv", "vertex"]),
        ({"regions.json": VIA}, ["via"]),
        ({"regions.json": VIA, "classes.txt": "cat", "labels/a.txt": "", "images/a.jpg": ""}, ["yolo", "via"]),
    ],
)
def test_what_contents_show(tmp_path, files, expected):
    for name, text in files.items():
        path = draw_all(tmp_path / "data", ["a.jpg"]) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert formats(tmp_path / "data") == expected


@pytest.mark.parametrize(
    ("files", "given", "expected"),
    [
        ([], {}, ["tfrecord"]),
        (["a.jpg"], {}, ["tfcsv"]),
        ([], {"images": ["elsewhere"]}, ["tfcsv"]),
    ],
)
def test_label_files_of_the_images_in_tfrecord_files(files, given, expected, tmp_path):
    """The many generate_tfrecord.py write train.record from train_labels.csv beside it."""
    table = "filename,width,height,class,xmin,ymin,xmax,ymax\n0.jpg,40,30,cat,10,6,20,24\n"
    contents = {"train_labels.csv": table, "train.record": tfrecord(old_record())}
    write_files(tmp_path / "data", contents | dict.fromkeys(files, jpeg(1)))
    assert [name for name, _ in recognise(str(tmp_path / "data"), given)] == expected


@pytest.mark.parametrize(
    ("file", "images"),
    [("annotations/instances_val2017.json", "val2017"), ("annotations/captions_val2017.json", "images")],
)
def test_coco_file_finds_its_images(file, images, tmp_path):
    path = write_export(tmp_path, Path(file).name, images)
    kind = path.name.partition("_")[0]
    assert found(path) == [("coco", {"data": paths(tmp_path / images), kind: paths(path)})]
    elsewhere = draw_all(tmp_path / "else", ["a.jpg"])
    assert found(path, images=str(elsewhere)) == [("coco", {"data": paths(elsewhere), kind: paths(path)})]
    beside = path.rename(tmp_path / images / "export.json")
    kind = "instances"  # as neither its name nor its contents say another one
    assert found(beside) == [("coco", {"data": paths(tmp_path / images), kind: paths(beside)})]


def test_coco_file_writes_what_its_flags_write(tmp_path, recordmill):
    file = write_export(tmp_path / "data")
    images = tmp_path / "data" / "val2017"
    said = recordmill("convert", file, "--images", images, "--output", tmp_path / "out")
    assert said.code == 0, said
    assert said.out.splitlines()[:2] == [
        f"{file} is read as coco: instances_val2017.json is COCO's JSON",
        f"recordmill convert {images} --output {tmp_path}/out --instances {file}",
    ]
    assert recordmill("convert", images, "--instances", file, "--output", tmp_path / "flags").code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "flags") != {}


@pytest.fixture
def photos(tmp_path) -> Path:
    """Images beside a table whose columns have unusual names."""
    data = draw_all(tmp_path / "photos", ["a.jpg", "b.jpg"])
    write_csv(data / "pets.csv", "age,photo,animal", "1,a.jpg,cat", "2,b.jpg,dog")
    return data


def test_table_whose_columns_have_unusual_names(photos, tmp_path, recordmill):
    table = photos / "pets.csv"
    refused = recordmill("convert", photos, "--output", tmp_path / "out")
    command = f"recordmill convert {photos} --labels {table} --image-column photo --label"
    assert (
        refused.code,
        f"its columns has their classes: age, photo, animal. Choose one: {command} COLUMN" in refused.err,
    ) == (2, True)
    named = {"data": paths(photos), "labels": paths(table), "image_column": "photo"}
    assert found(photos, label="animal") == [("folder", named)]
    by_command = [*command.split()[1:], "animal"]
    said = recordmill("convert", photos, "--label", "animal", "--output", tmp_path / "out")
    assert said.code == 0, said
    assert recordmill(*by_command, "--output", tmp_path / "command").code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "command") != {}
    by_command[by_command.index("--image-column") :] = []
    refused = recordmill(*by_command, "--output", tmp_path / "no")
    assert "its columns are 'age', 'photo', 'animal'. Name the column with --image-column" in refused.err


def test_table_beside_class_folders_that_says_no_classes(tmp_path):
    data = draw_all(tmp_path / "data", ["cat/a.jpg", "dog/b.jpg"])
    write_csv(data / "sizes.csv", "filename,bytes", "a.jpg,7", "b.jpg,9")
    assert found(data) == [("folder", {"data": paths(data)})]


def test_column_that_names_images_without_their_ending(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["train/a.jpg", "train/b.jpg", "c.jpg", "c.png"])
    table = write_csv(data / "labels.csv", "key,breed", "train/a,pug", "train/b,poodle", "c,pug")
    named = {"data": paths(data), "labels": paths(table), "image_column": "key"}
    assert found(data, label="breed") == [("folder", named)]
    assert recognise(str(data))[0][1].fault is not None
    done = recordmill("convert", data, "--label", "breed", "--output", tmp_path / "out", "--max-rejects", 0.5)
    assert done.code == 0, done
    train = manifest_of(tmp_path / "out")["splits"]["train"]
    assert (train["class_counts"], train["images"]["written"]) == ([1, 1], 2)  # two files are called c
    assert "no file 'c'" in (tmp_path / "out" / "rejects-train.jsonl").read_text()


def test_rows_of_any_columns(tmp_path):
    one, other = (write_csv(tmp_path / "rows" / name, "x,kind", "1,cat") for name in ("a.csv", "b.csv"))
    pattern = tmp_path / "rows" / "*.csv"
    for data, read in (
        ([one], paths(one)),
        ([pattern], paths(pattern)),
        ([other, one], paths(other, one)),
        ([one.parent], paths(one, other)),
    ):
        assert found(*data) == [("table", {"data": read})]
    of_things = write_csv(tmp_path / "things" / "a.csv", "name,category", "mug,kitchen")
    assert found(of_things) == found(of_things.parent) == [("table", {"data": paths(of_things)})]
    draw_all(one.parent, ["a.jpg"])  # which the rows do not name
    assert found(one.parent) == []


def test_rows_write_what_the_said_command_writes(tmp_path, recordmill):
    pattern = write_csv(tmp_path / "rows" / "a.csv", "x,kind", "1,cat").with_name("*.csv")
    said = recordmill("convert", pattern, "--label", "kind", "--output", tmp_path / "out")
    assert said.code == 0, said
    assert said.out.splitlines()[:2] == [
        f"{pattern} is read as table: a pattern of files of rows",
        f"recordmill convert '{pattern}' --label kind --output {tmp_path}/out --format table",
    ]
    named = recordmill("convert", pattern, "--label", "kind", "--output", tmp_path / "named", "--format", "table")
    assert (named.code, "is read as" in named.out) == (0, False)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "named") != {}


def test_several_data(tmp_path, recordmill):
    first, second = (draw_all(tmp_path / top, [f"{kind}/{top}.jpg" for kind in ("cat", "dog")]) for top in "ab")
    assert found(first, second) == [("folder", {"data": paths(first, second)})]
    rows = write_csv(tmp_path / "rows.csv", "x", "1")
    yolo = draw_all(tmp_path / "yolo", ["images/a.jpg"])
    write_csv(yolo / "classes.txt", "cat")
    write_csv(yolo / "labels" / "a.txt", "0 0.5 0.5 0.5 0.5")
    labelled = draw_all(tmp_path / "labelled", ["a.jpg", "b.jpg"])
    write_csv(labelled / "labels.csv", "file,label", "a.jpg,cat", "b.jpg,dog")
    for others, fault in (
        ([first, rows], "and tables are not joined"),
        (
            [first, yolo],
            "all records have one layout, but images of a (folder) have one class each",
        ),
        ([yolo, first, "--format", "yolo"], f"{first} has neither data.yaml nor classes.txt"),
    ):
        refused = recordmill("convert", *others, "--output", tmp_path / "out")
        assert (refused.code, fault in refused.err) == (2, True), refused
    assert found(first, labelled) == []  # each is a data set
    file = write_export(tmp_path / "coco")
    images = [file.parents[1] / "val2017", first]
    refused = recordmill("convert", images[0], "--images", images[1], "--instances", file, "--output", tmp_path / "out")
    assert (refused.code, "both name the images. Give only one of them" in refused.err) == (2, True), refused
    refused = recordmill("convert", images[0], file, "--output", tmp_path / "out")
    assert (refused.code, f"convert {images[0]} --instances {file}" in refused.err) == (2, True), refused
    done = recordmill("convert", *images, "--instances", file, "--output", tmp_path / "out", "--dry-run")
    assert done.code == 0, done


def test_several_folders_of_classes(tmp_path):
    """A folder may have a single class, and may be wrapped in another folder of a .zip."""
    both = draw_all(tmp_path / "wrapped" / "pets", ["cat/a.jpg", "dog/a.jpg"])
    single = draw_all(tmp_path / "single", ["cow/b.jpg"])
    archive = Path(shutil.make_archive(str(tmp_path / "archive"), "zip", both.parent))
    assert found(archive, single) == [("folder", {"data": [f"{archive}/pets", str(single)]})]
    assert found(single, single) == [("folder", {"data": paths(single, single)})]
    assert found(single, draw_all(tmp_path / "flat", ["images/a.jpg"])) == []


def test_named_format_finds_what_recognition_finds(tmp_path, recordmill):
    """--format unwraps a folder, and finds label files and images. What it finds is said."""
    voc = draw_all(tmp_path / "voc" / "VOC2012", ["JPEGImages/a.jpg"])
    write_csv(voc / "Annotations" / "a.xml", "<annotation><filename>a.jpg</filename></annotation>")
    file = write_export(tmp_path / "coco")
    wrapped = tmp_path / "wrapped"
    write_export(wrapped / "coco")
    labelled = draw_all(tmp_path / "labelled", ["images/a.jpg", "images/b.jpg"])
    labels = write_csv(labelled / "labels.csv", "file,label", "a.jpg,cat", "b.jpg,dog")
    images = {"images": paths(file.parents[1] / "val2017")}
    for data, format_, values in (
        (voc.parent, "voc", {"data": str(voc)}),
        (file, "coco", images | {"instances": paths(file)}),
        (wrapped, "coco", {"data": f"{wrapped}/coco"}),
        (labelled, "folder", {"data": paths(labelled / "images"), "labels": paths(labels)}),
        (labels, "folder", {"data": paths(labelled / "images"), "labels": paths(labels)}),
    ):
        given = {"data": [str(data)], "output": "out"}
        named = choose_conversion({**given, "format": format_})
        assert (named.format.name, named.values) == (format_, {**values, "output": "out"})
        assert named.notes == choose_conversion(given).notes
    for data in (labels, labelled):
        rows = choose_conversion({"data": [str(data)], "format": "table"})
        assert (rows.values, rows.notes) == ({"data": paths(data)}, ())
    missing = recordmill("convert", tmp_path / "gone", "--format", "voc", "--output", tmp_path / "out")
    assert (missing.code, f"DATA {tmp_path}/gone: no such file or folder" in missing.err) == (2, True), missing


@pytest.fixture
def split_folders(tmp_path) -> Path:
    """Class folders below folders of splits, with the same names in both; and a flat folder of a third split."""
    names = [f"{split}/{kind}/{n}.jpg" for split in ("Valid", "Training") for kind in ("cat", "dog") for n in range(3)]
    return draw_all(tmp_path / "data", [*names, "test/0.jpg", "test/1.jpg"])


def test_class_folders_below_folders_of_splits(split_folders, tmp_path, recordmill, caplog):
    """One job writes the bytes and recipes of a command per split. Images without classes are left out."""
    said = recordmill("convert", split_folders, "--output", tmp_path / "out", "--num-shards", 2)
    assert said.code == 0, said
    assert said.out.splitlines()[:2] == [
        f"{split_folders} is read as folder: 2 class folders below Training, Valid",
        f"recordmill convert {split_folders} --output {tmp_path}/out --num-shards 2 --format folder",
    ]
    left_out = f"{split_folders}/test has 2 images and no class folders, so it is left out"
    assert [left_out in message for message in caplog.messages].count(True) == 1
    for folder, split in (("Training", "train"), ("Valid", "val")):
        flags = ["--format", "folder", "--split", split, "--output", tmp_path / "apart", "--num-shards", 2]
        assert recordmill("convert", split_folders / folder, *flags).code == 0
    whole, apart = (manifest_of(tmp_path / name) for name in ("out", "apart"))
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "apart")
    assert len(shard_bytes(tmp_path / "out")) == 4
    for split in ("train", "val"):
        assert whole["splits"][split]["class_counts"] == [3, 3]
        for part in ("recipe", "shards", "images"):
            assert whole["splits"][split][part] == apart["splits"][split][part]
    assert [*whole["splits"]] == ["train", "val"]
    assert whole["categories"] == apart["categories"]
    for out in ("out", "apart"):  # each is complete
        again = recordmill(
            "convert", split_folders, "--format", "folder", "--output", tmp_path / out, "--num-shards", 2
        )
        assert (again.code, manifest_of(tmp_path / out)["splits"].keys()) == (0, {"train", "val"}), again


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["Train/cat/a.jpg", "train/dog/b.jpg", "val/cat/c.jpg"], "are both the split train"),
        (["val/cat/a.jpg", "valid/dog/b.jpg", "train/cat/c.jpg"], "are both the split val"),
        (["train/cat/a.jpg", "val/cat/b.jpg", "extra/c.jpg"], "and extra, which is of no split"),
        (["train/cat/a.jpg", "val/cat/b.jpg", "c.jpg"], "and c.jpg, which is of no split"),
    ],
)
def test_folders_beside_splits_are_not_lost(tmp_path, recordmill, names, fault):
    data = draw_all(tmp_path / "data", names)
    refused = recordmill("convert", data, "--format", "folder", "--output", tmp_path / "out")
    assert (refused.code, fault in refused.err) == (2, True), refused


def test_pattern_of_parquet_files(tmp_path, recordmill):
    """Their images are read, and folders of splits are not one split."""
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        pq.write_table(pa.Table.from_pylist(file_rows(3)), tmp_path / split / "a.parquet")
    assert found(tmp_path / "train" / "*.parquet")[0][1]["image_column"] == "image"
    refused = recordmill("convert", tmp_path / "*" / "*.parquet", "--output", tmp_path / "out")
    assert (refused.code, "are in folders of the splits train, val" in refused.err) == (2, True), refused


@pytest.mark.parametrize(
    "names", [("data/train-0.parquet", "data/val-0.parquet"), ("Train/a.parquet", "dev/a.parquet")]
)
def test_parquet_files_of_splits(tmp_path, recordmill, names):
    """One job writes the bytes and recipes of a command per split."""
    data = tmp_path / "data"
    for number, name in enumerate(names):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        rows = [row | {"label": ("cat", "dog")[row["kind"]]} for row in file_rows(7 + number)]
        pq.write_table(pa.Table.from_pylist(rows), data / name)
    flags = ["--image-column", "image", "--label", "label", "--max-rejects", 0.5, "--num-shards", 2]
    said = recordmill("convert", data, "--output", tmp_path / "out", *flags[4:])
    flags += ["--format", "table"]
    assert (said.code, f"{data} is read as table: column image of " in said.out) == (0, True), said
    for name, split in zip(names, ("train", "val"), strict=True):
        one = ["--split", split, "--output", tmp_path / "apart"]
        assert recordmill("convert", data / name, *one, *flags).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "apart")
    whole, apart = (manifest_of(tmp_path / name)["splits"] for name in ("out", "apart"))
    assert [whole[split]["recipe"] for split in ("train", "val")] == [apart[s]["recipe"] for s in ("train", "val")]
    refused = recordmill("convert", data, *flags, "--split", "train", "--stratify", "--output", tmp_path / "no")
    assert refused.code == 2, refused


@pytest.mark.parametrize("split", ["train=0.5,val=0.5", "train"])
@pytest.mark.parametrize("model", [(), ("--model", "efficientnet-b0", "--weights", "none")])
def test_split_beside_folders_of_splits(split_folders, tmp_path, recordmill, split, model):
    """Also the default, if the user gave it: one split cannot have the images of all folders."""
    refused = recordmill("convert", split_folders, "--split", split, *model, "--output", tmp_path / "out")
    said = "has folders of the splits train, val, and --split names splits, too"
    assert (refused.code, said in refused.err) == (2, True), refused


def test_default_split_beside_splits_of_data(tmp_path, recordmill):
    """--split train names one split, of data that has several."""
    rows = tmp_path / "rows"
    for name in ("train.csv", "test.csv"):
        write_csv(rows / name, "x", "1")
    coco = tmp_path / "coco"
    write_export(coco)
    write_export(coco, "instances_train2017.json", "train2017")
    yolo = draw_all(tmp_path / "yolo", ["images/train/a.jpg", "images/val/b.jpg"])
    write_csv(yolo / "data.yaml", "train: images/train", "val: images/val", "names: [cat]")
    write_csv(yolo / "labels" / "val" / "b.txt", "0 0.5 0.5 0.1 0.1")
    labels = draw_all(tmp_path / "labels", ["a.jpg", "b.jpg"])
    write_csv(labels / "labels.csv", "file,label,split", "a.jpg,cat,train", "b.jpg,dog,val")
    for data, said in (
        (rows, "has files of the splits train, test, which --split would divide again"),
        (coco, "has a file for each of the splits train, val, and so does --split"),
        (yolo, "names the splits of its images (train, val), and so does --split"),
        (labels, "has a column of splits (train, val). Leave out --split"),
    ):
        refused = recordmill("convert", data, "--split", "train", "--output", tmp_path / "out")
        assert (refused.code, said in refused.err) == (2, True), refused
        assert recordmill("convert", data, "--output", tmp_path / "out", "--dry-run").code == 0


def test_ambiguous_or_unknown_is_refused(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["images/a.jpg"])
    (data / "annotations.xml").write_text("<annotations></annotations>")
    (data / "labels").mkdir()
    (data / "labels" / "a.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (data / "classes.txt").write_text("cat\n")
    refused = recordmill("convert", data, "--output", tmp_path / "out")
    assert (refused.code, "2 ways: yolo (" in refused.err, "cvat (" in refused.err) == (2, True, True)
    chosen = recordmill("convert", data, "--format", "yolo", "--output", tmp_path / "out")
    assert (chosen.code, "is read as" in chosen.out) == (0, False)
    by_flag = recordmill("convert", data, "--task", "detect", "--output", tmp_path / "out", "--dry-run")
    assert (by_flag.code, f"{data} is read as yolo" in by_flag.out) == (0, True), by_flag
    for data in (tmp_path / "gone", draw_all(tmp_path / "flat", ["a.jpg"])):
        assert recordmill("convert", data, "--output", tmp_path / "no").code == 2
    for words, said in (
        ((), "DATA is missing"),
        (("--dta", "flat"), "unknown flag --dta. Give DATA without a flag (recordmill"),
        (("flat", "--label_as=text"), "unknown flag --label_as. Did you mean --label-as? (recordmill"),
        (("flat", "--format", "yollo"), "(got 'yollo'). Did you mean yolo?"),
        (("flat", "--format", "embed"), "To store features of a model, give --model NAME"),
        (("flat", "--format", "jpeg"), "To store images as jpeg, give --image-format jpeg"),
    ):
        refused = recordmill("convert", *words, "--output", tmp_path / "no")
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_flag_of_another_format(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["JPEGImages/a.jpg"])
    write_csv(data / "Annotations" / "a.xml", "<annotation><filename>a.jpg</filename></annotation>")
    of_voc = f"{data} is voc (Annotations/a.xml)"
    for flags, said in (
        (("--task", "segment"), f"--task is a flag of yolo; {of_voc}"),
        (
            ("--model", "efficientnet-b0"),
            f"--model applies to class folders, and to rows with --image-column, but {of_voc}",
        ),
        (("--format", "coco", "--task", "segment"), "--task is a flag of yolo; --format is coco"),
        (("--labels", data, "--instances", data), "--instances (coco) and --labels (folder) are of two formats"),
    ):
        refused = recordmill("convert", data, *flags, "--output", tmp_path / "out")
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_folder_of_label_files_is_no_table(tmp_path, recordmill):
    """Users of YOLO name the folders of images and of labels."""
    data = draw_all(tmp_path / "data", ["images/a.jpg"])
    write_csv(data / "labels" / "a.txt", "0 0.5 0.5 0.2 0.2")
    write_csv(data / "classes.txt", "cat")
    refused = recordmill("convert", data / "images", "--labels", data / "labels", "--output", tmp_path / "out")
    said = f"not a table. Convert it by: recordmill convert {data} --format yolo"
    assert (refused.code, said in refused.err) == (2, True), refused.err
    (data / "classes.txt").unlink()  # a command that fails is not advised
    refused = recordmill("convert", data / "images", "--labels", data / "labels", "--output", tmp_path / "out")
    assert (refused.code, f"{data} has neither data.yaml nor classes.txt" in refused.err) == (2, True), refused.err
    assert "Convert it by" not in refused.err


def test_what_sample_writes_is_recognised(sample, tmp_path, recordmill, caplog):
    """The panoptic file makes the semantic mask, and that of stuff is left out."""
    folder = Path(sample.images).parent
    plan = recordmill("convert", folder, "--max-rejects", 0.2, "--output", tmp_path / "out", "--dry-run")
    assert (plan.code, f"{folder} is read as coco" in plan.out) == (0, True), plan
    assert "stuff.json is not read: the panoptic file" in caplog.text


def test_output_in_data_is_not_recognised(tmp_path, recordmill):
    """The same command twice: its own data set is no data."""
    data = draw_all(tmp_path / "data", ["cat/a.jpg", "dog/b.jpg"])
    for _ in range(2):
        done = recordmill("convert", data, "--output", data / "out")
        assert (done.code, f"{data} is read as folder: 2 class folders" in done.out) == (0, True), done


@pytest.mark.parametrize(
    ("flags", "cure"),
    [
        ([], "recordmill repack {} OUT --replan"),
        (["--labels-only", "--as", "yolo"], "recordmill extract {} OUT --as yolo"),
    ],
)
def test_data_set_that_convert_wrote(flags, cure, copy_converted, tmp_path, recordmill):
    copy_converted(tmp_path / "old")
    refused = recordmill("convert", tmp_path / "old", *flags, "--output", tmp_path / "out")
    assert (refused.code, cure.format(tmp_path / "old") in refused.err) == (2, True), refused.err


def test_layout_without_names_of_splits(tmp_path, recordmill):
    """Shards of two splits would have the same names."""
    data = draw_all(tmp_path / "data", ["train/1.jpg", "val/2.jpg"])
    for split, name in (("train", "1.jpg"), ("val", "2.jpg")):
        box = '{"label": "cat", "coordinates": {"x": 9, "y": 9, "width": 4, "height": 4}}'
        (data / split / "a.createml.json").write_text(f'[{{"image": "{name}", "annotations": [{box}]}}]')
    refused = recordmill("convert", data, "--layout", "keras", "--output", tmp_path / "out")
    said = "but the data set has train and val. Convert each split to its own --output, or choose another --layout"
    assert (refused.code, said in refused.err) == (2, True), refused


def test_nearest_candidate_is_named(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["PetImages/cat/1.jpg", "PetImages/dog/1.jpg"])
    (data / "run.sh").touch()
    refused = recordmill("convert", data, "--output", tmp_path / "out")
    assert refused.code == 2
    assert ": 2 images, 1 other file (.sh). " in refused.err
    assert f"{data}/PetImages is read as folder (2 class folders). Give that." in refused.err
    write_export(data / "PetImages")
    refused = recordmill("convert", data, "--output", tmp_path / "out")
    assert "has no annotation file of a COCO export" in refused.err
    assert (
        f"{data}/PetImages is read as coco (annotations/instances_val2017.json is COCO's JSON). Give that."
        in refused.err
    )


@pytest.mark.parametrize("more", [[], ["--depth-images", "data", "--depth-scale", "0.001"]])
def test_export_of_roboflow_is_not_read_without_its_labels(more, tmp_path, recordmill, monkeypatch):
    """The folders of its images look like class folders, and its depth maps like a data set of their own."""
    draw_all(tmp_path / "data" / "train", ["rgb/a.jpg", "depth/a.png"])
    file = write_coco(tmp_path / "data", [image_row(1, "a.jpg", 20, 60)], [annotation(1, 1)], CATEGORIES)
    file.rename(tmp_path / "data" / "train" / "_annotations.coco.json")
    monkeypatch.chdir(tmp_path)
    refused = recordmill("convert", "data", "--output", "out", *more)
    assert (refused.code, "_annotations.coco.json names the image 'a.jpg'" in refused.err) == (2, True), refused


def test_depth_maps_without_labels_name_the_files_that_are_not_read(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["train/rgb/a.jpg", "train/depth/a.png"])
    (data / "train" / "poses.json").write_text("{}")
    planned = recordmill(
        "convert", data, "--depth-images", data, "--depth-scale", 1, "-o", tmp_path / "out", "--dry-run"
    )
    assert "(not read: train/poses.json)" in planned.out, planned


def test_coco_file_whose_images_are_elsewhere(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["pics/a.jpg"])
    file = write_coco(data, [image_row(1, "a.jpg", 20, 60)], [annotation(1, 1)], CATEGORIES)
    for name in ("instances.json", "labels.json"):
        file = file.rename(data / name)
        for given in (data, file):
            refused = recordmill("convert", given, "--output", tmp_path / "out")
            assert (refused.code, f"{name} names the image 'a.jpg'" in refused.err) == (2, True), refused.err
            assert "Give the folder of all images by --images" in refused.err
            cured = recordmill("convert", given, "--images", data / "pics", "--output", tmp_path / "out", "--dry-run")
            assert (cured.code, f"{given} is read as coco" in cured.out) == (0, True), cured
    (data / "more").mkdir()
    file.rename(data / "more" / "export.json")
    refused = recordmill("convert", data, "--output", tmp_path / "out")
    assert "no annotation file of a COCO export" in refused.err


def test_folders_that_wrap_a_data_set(tmp_path):
    inner = draw_all(tmp_path / "a" / "sets" / "pets", ["cat/a.jpg", "dog/a.jpg"])
    for name in ("README.md", ".DS_Store", "__MACOSX/sets/._pets"):
        file = tmp_path / "a" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert unwrap_folder(str(tmp_path / "a")) == str(inner)
    shutil.make_archive(str(tmp_path / "a"), "zip", tmp_path / "a")
    assert found(tmp_path / "a.zip") == [("folder", {"data": [f"{tmp_path}/a.zip/sets/pets"]})]

    (tmp_path / "a" / "sets" / "labels.csv").touch()
    assert unwrap_folder(str(tmp_path / "a")) == str(inner.parent)
    split = draw_all(tmp_path / "b", ["Train/cat/a.jpg", "Train/dog/a.jpg"])
    assert unwrap_folder(str(split)) == str(split)


def test_contradictory_annotations(tmp_path, recordmill):
    data = draw_all(tmp_path / "data", ["images/a.jpg", "maps/b.jpg"])
    (data / "annotations").mkdir()
    for name, info in {"instances.json": "1", "instances.json.gz": "22"}.items():
        text = f'{{"info": {info}, "images": [], "annotations": [], "categories": []}}'
        (data / "annotations" / name).write_text(text)
    refused = recordmill("convert", data, "--output", tmp_path / "out")
    assert (refused.code, "annotations/instances.json.gz" in refused.err) == (2, True), refused.err
    for name, named in (("folder", [str(data)]), ("yolo", str(data))):
        conversion = choose_conversion({"data": [str(data)], "format": name})
        assert (conversion.format.name, conversion.values, conversion.notes) == (name, {"data": named}, ())
    (data / "annotations").rename(data / "notes")  # so `images` and `maps` may be classes
    assert formats(data) == ["coco", "folder"]
    (data / "notes" / "instances.json").write_text("{}")
    assert formats(data) == ["folder"]


@pytest.mark.skipif(not FORMATS.is_dir(), reason="needs shared/data")
def test_real_data_sets():
    found = {
        name: formats(SHARED_DATA / name)
        for name in (
            *("coco_mini", "facemask", "cbir_mixed_jpg_png", "formats/yolo_kayisi", "formats/voc_bccd/BCCD"),
            *("formats/hf_objects", "formats/via_kudzu", "formats/createml_anpr", "formats/cvat_missing_images"),
            *("formats/yolo_hub/example_datasets/imagenet10", "formats/labelme_examples/examples/tutorial", "pngsuite"),
        )
    }
    assert list(found.values()) == [
        *(["coco"], ["coco"], ["folder"], ["yolo"], ["voc"]),
        *(["imagefolder"], ["via"], ["createml"], ["cvat"]),
        *(["folder"], ["labelme"], []),
    ]
