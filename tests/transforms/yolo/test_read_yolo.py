import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.file_kinds import LFS_POINTER
from recordmill.schemas.rejects import Reason
from recordmill.transforms.annotated.yolo_lines import LineFormat
from recordmill.transforms.yolo import read_yolo
from recordmill.transforms.yolo.read_yolo import _box_fields, _check_lines, parse_labels, source
from recordmill.transforms.yolo.yolo_options import YoloOptions
from tests.literal_data import write_files

NAMES = ("cat", "dog")
DETECT = LineFormat(NAMES, "")
SEGMENT = LineFormat(NAMES, "segment", has_masks=True)
OBB = LineFormat(NAMES, "obb")
POSE = LineFormat(NAMES, "pose", 2, 3)
TRACKS = LineFormat(NAMES, "", fields=("track_id",))
POSE_XY = LineFormat(NAMES, "pose", 2, 2)
LINE = "0 0.5 0.5 0.2 0.4"


def parsed(lines: str, rules: LineFormat):
    (image,) = parse_labels(lines.encode(), "a.txt", rules)
    return image


@pytest.mark.parametrize(
    ("line", "rules", "box"),
    [
        ("1 0.5 0.5 0.2 0.4", DETECT, (0.4, 0.3, 0.2, 0.4)),
        ("1.0\t.5  5e-1 0.2 0.4 ", DETECT, (0.4, 0.3, 0.2, 0.4)),
        ("1 0.9 0.5 0.2 1", DETECT, (0.8, 0, 0.2, 1)),
        ("1 0.005 0.5 1.009 1", DETECT, (-0.4995, 0, 1.009, 1)),  # as far beyond 0..1 as Ultralytics takes it
        ("1 0.1 0.2 0.3 0.2 0.3 0.6", DETECT, (0.1, 0.2, 0.2, 0.4)),
        ("1 0.1 0.2 0.3 0.2 0.3 0.6", LineFormat(NAMES, "detect"), (0.1, 0.2, 0.2, 0.4)),
        ("1 0.1 0.2 0.3 0.2 0.3 0.6 0.1 0.6", OBB, (0.1, 0.2, 0.2, 0.4)),
        ("1 0.9 0.2 1.05 0.2 1.05 0.6 0.9 0.6", OBB, (0.9, 0.2, 0.15, 0.4)),
        ("1 0.5 0.5 0.2 0.4 0.1 0.2 2 0 0 0", POSE, (0.4, 0.3, 0.2, 0.4)),
    ],
)
def test_boxes(line, rules, box):
    (object_,) = parsed(line, rules).sample.objects
    assert (object_.category, object_.category_id, object_.frame) == ("dog", 1, "fraction")
    assert object_.box == pytest.approx(box, abs=1e-12)


def test_polygons_and_keypoints():
    (object_,) = parsed("0 .1 .2 .3 .2 .3 0.6", SEGMENT).sample.objects
    assert object_.segmentation == "[[0.1, 0.2, 0.3, 0.2, 0.3, 0.6]]"
    (object_,) = parsed(f"{LINE} 0.1 0.2 2 0 0 0", POSE).sample.objects
    assert object_.keypoints == (0.1, 0.2, 2, 0, 0, 0)
    (object_,) = parsed(f"{LINE} 0.1 0.2 -0.001 0.5", POSE_XY).sample.objects
    assert object_.keypoints == (0.1, 0.2, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("line", "rules", "reason", "detail"),
    [
        ("2 0.5 0.5 0.2 0.4", DETECT, Reason.UNKNOWN_CATEGORY, "class 2 is not in 0 to 1"),
        ("0.5 0.5 0.5 0.2 0.4", DETECT, Reason.UNKNOWN_CATEGORY, "class 0.5"),
        ("-1 0.5 0.5 0.2 0.4", DETECT, Reason.UNKNOWN_CATEGORY, "class -1"),
        ("nan 0.5 0.5 0.2 0.4", DETECT, Reason.UNKNOWN_CATEGORY, "class nan"),
        ("cat 0.5 0.5 0.2 0.4", DETECT, Reason.MALFORMED_ANNOTATION, "a column is not a number: 'cat 0.5"),
        ("0 120 80 40 60", DETECT, Reason.MALFORMED_BOX, "a number is not in 0..1: '0 120 80 40 60'"),
        ("0 0.5 -0.02 0.2 0.4", DETECT, Reason.MALFORMED_BOX, "not in 0..1"),
        ("0 0.5 0.5 nan 0.4", DETECT, Reason.MALFORMED_BOX, "a number is not finite"),
        ("0 0.5 0.5 0_1 0.4", DETECT, Reason.MALFORMED_ANNOTATION, "a column is not a number"),
        ("1e300 0.5 0.5 0.1 0.4", DETECT, Reason.UNKNOWN_CATEGORY, "class 1e+300 is not in 0 to"),
        ("0 0.5 0.5 0.2 -0.005", DETECT, Reason.MALFORMED_BOX, "width or height is negative"),
        ("0 0.5 0.5 0.2", DETECT, Reason.MALFORMED_ANNOTATION, "4 columns; a box has 5"),
        ("0 0.5 0.5 0.2 0.4 0.9", SEGMENT, Reason.MALFORMED_ANNOTATION, "6 columns; a polygon has 7"),
        ("0 0.5 0.5 0.2 0.4 0.9", OBB, Reason.MALFORMED_ANNOTATION, "6 columns; an oriented box has 9"),
        ("0 0.5 0.5 0.2 0.4 0.9", POSE, Reason.MALFORMED_ANNOTATION, "6 columns; kpt_shape requires 11"),
        ("0 0.5 0.5 0.2 0.4 1.5", TRACKS, Reason.MALFORMED_ANNOTATION, "track_id 1.5 is not a whole number"),
        ("0 .1 .1 .1 .1 .1 .1 .1", DETECT, Reason.MALFORMED_ANNOTATION, "8 columns"),
        ("0 .1 .1 .9 .1 .9 1.5", SEGMENT, Reason.MALFORMED_BOX, "not in 0..1"),
        ("0 .95 .1 1.3 .1 1.3 .5", SEGMENT, Reason.MALFORMED_BOX, "not in 0..1"),
        ("0 .1 .1 .9 nan .9 .5", SEGMENT, Reason.MALFORMED_BOX, "a number is not finite"),
        ("0 inf .1 .9 .1 .9 .5", SEGMENT, Reason.MALFORMED_BOX, "a number is not finite"),
        ("0 .1 .1 .9 .1 .9 .5", OBB, Reason.MALFORMED_ANNOTATION, "7 columns; an oriented box has 9"),
        (LINE, POSE, Reason.MALFORMED_ANNOTATION, "5 columns; kpt_shape requires 11"),
        (f"{LINE} 0.1 0.2 3 0 0 0", POSE, Reason.MALFORMED_KEYPOINTS, "a visibility is not 0, 1 or 2"),
        (f"{LINE} 0.1 1.2 2 0 0 0", POSE, Reason.MALFORMED_BOX, "not in 0..1"),
        (f"{LINE} 0.1 0.2 nan 0 0 0", POSE, Reason.MALFORMED_KEYPOINTS, "a visibility is not 0, 1 or 2"),
    ],
)
def test_a_line_with_a_fault_is_one_fault_and_the_others_stay(line, rules, reason, detail):
    good = {POSE: f"{LINE} 0 0 0 0 0 0", OBB: "0 .1 .1 .2 .1 .2 .2 .1 .2"}.get(rules, LINE)
    image = parsed(f"{good}\n\n{line}\n", rules)
    (fault,) = image.faults
    assert (fault.reason, fault.line, len(image.sample.objects)) == (reason, 3, 1)
    assert detail in fault.text("a.txt")
    assert fault.text("a.txt").startswith("a.txt, line 3: ")


@pytest.mark.parametrize(
    ("columns", "names", "fields", "warnings"),
    [
        ("", ("score",), {}, 0),
        ("0.25", (), {}, 1),
        ("0.25", ("score",), {"score": 0.25}, 0),
        ("7", ("track_id",), {"track_id": 7}, 0),
        ("0.25", ("score", "track_id"), {"score": 0.25}, 0),
        ("0.25 7", ("score", "track_id"), {"score": 0.25, "track_id": 7}, 0),
    ],
)
def test_fields_are_columns_after_the_fifth(columns, names, fields, warnings):
    image = parsed(f"{LINE} {columns}", LineFormat(NAMES, "", fields=names))
    (object_,) = image.sample.objects
    assert (object_.box, object_.fields, len(image.warnings)) == ((0.4, 0.3, 0.2, 0.4), fields, warnings)
    assert image.notes == ("box",)


def test_seven_numbers_are_a_triangle_unless_both_fields_are_named():
    for names in ((), ("score",), ("track_id",)):
        (object_,) = parsed(POLYGON, LineFormat(NAMES, "", fields=names)).sample.objects
        assert (object_.fields, object_.area_px2) == ({}, pytest.approx(0.16))


def test_a_score_above_1_names_track_id():
    rules = LineFormat(NAMES, "", fields=("score",))
    with pytest.raises(ConfigError, match="Is it a track_id"):
        list(_check_lines(frozenset(parsed(f"{LINE} 7", rules).notes), rules))


def test_a_line_that_is_there_twice():
    image = parsed(f"{LINE}\n1{LINE[1:]}\n{LINE.replace('0.5', '.50')}", DETECT)
    assert [(fault.reason, fault.line) for fault in image.faults] == [(Reason.DUPLICATE_ANNOTATION, 3)]
    assert "repeats line 1" in image.faults[0].detail
    assert len(image.sample.objects) == 2


POLYGON = "0 .1 .1 .9 .1 .9 .5"
NINE = f"{POLYGON} .1 .5"


@pytest.mark.parametrize(
    ("lines", "rules", "prefixes"),
    [
        (NINE, DETECT, ["all lines have nine columns"]),
        (f"{NINE}\n{LINE}", DETECT, ["some label files have both boxes and polygons", "label files have polygons"]),
        (f"{POLYGON}\n{NINE}", DETECT, ["label files have polygons"]),
        (f"{POLYGON}\n{LINE}", SEGMENT, []),
        (NINE, LineFormat(NAMES, "segment"), ["label files have polygons"]),
        (NINE, OBB, []),
        (LINE, DETECT, []),
    ],
)
def test_kinds_of_lines(lines, rules, prefixes):
    messages = []
    try:
        messages += _check_lines(frozenset(parsed(lines, rules).notes), rules)
    except ConfigError as error:
        messages.append(str(error))
    assert len(messages) == len(prefixes)
    assert all(map(str.startswith, messages, prefixes))


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (LINE.encode("utf-16"), "it is text in UTF-16. Save it as UTF-8"),
        (b"0 0.5 \xff", "it is not UTF-8 (byte 6)"),
        (LFS_POINTER + b".github.com/spec/v1\noid sha256:4d\nsize 12\n", "it is a Git LFS pointer"),
        (b"<!doctype html>\n<p>404</p>", "it is a web page"),
    ],
)
def test_a_file_that_is_none_spoils_its_image(data, detail):
    (image,) = parse_labels(data, "a.txt", DETECT)
    assert image.sample is None
    assert image.faults[0].reason is Reason.MALFORMED_LABELS
    assert image.faults[0].text("a.txt").startswith(f"a.txt: {detail}")


def test_lines_that_are_all_faulty_are_counted_by_line():
    image = parsed("0,0.5,0.5,0.2,0.4\n0,0.5,0.5,0.2,0.4\n", DETECT)
    assert ([fault.line for fault in image.faults], image.sample.objects) == ([1, 2], ())


def test_byte_order_mark_and_empty_file():
    assert len(parsed(f"\ufeff{LINE}\r\n", DETECT).sample.objects) == 1
    assert parsed(" \n\n", DETECT) == parsed("", DETECT)


TENS = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *TENS])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "data.yaml has no keys"),
        (b"names: [cat\n", "not valid YAML"),
        (b"names: [T\xfcr]\n", "not valid YAML"),
        (b"names: " + b"[" * 5000, "not valid YAML"),
        (b"path: 2020-99-99\n", "data.yaml, line 1: not valid YAML: '2020-99-99' is not a valid timestamp"),
        (b"names: [cat]\nnc: 1.5\n", "data.yaml: nc is not a whole number: '1.5'"),
        (b"names: [0: chair, 1: couch]\n", "data.yaml: names has an entry that is not a text: {'0': 'chair'}"),
        (b"names: {0: cat, 0.9: dog}\n", "data.yaml: names has an index that is not a whole number: '0.9'"),
        (b"names: {0: cat, 0: dog}\n", "data.yaml is not valid YAML: the key '0' is given twice"),
        (b"names: {0: cat, 00: dog}\n", "data.yaml: the indices of its 2 names are not 0 to 1"),
        (b'names: [cat]\nx: !!float ""\n', r"data.yaml, line 2: not valid YAML: '' is not a valid float"),
        (b"names: [cat]\nx: !!bool x\n", r"line 2: not valid YAML: 'x' is not a valid bool"),
        (b"x:\n- !!timestamp x\n", r"line 2: not valid YAML: 'x' is not a valid timestamp"),
        (b"x: 1\ny: 9" + b"9" * 5000, r"line 2: not valid YAML: '9+… is not a valid int"),
        (b'names: [cat]\nval: "images/\\0"\n', r"line 2: not valid YAML: 'images/\\x00' has a NUL"),
        (b'names: ["\\ud800"]\n', r"line 1: .* half of a surrogate pair"),
        (b'path: "\\ud800"\n', r"line 1: .* half of a surrogate pair"),
        (f"{BOMB}\nnames: *a8\nx: !!float [*a8]".encode(), r"a list or mapping is not a valid float|not valid YAML"),
        *((b"nc: %b\n" % nc, "data.yaml: nc is .*, which must be 1 to 1,000,000") for nc in (b"30000000", b"0")),
        *((b"nc: %b\n" % nc, "data.yaml: nc is not a whole number: '") for nc in (b"-5", b"9" * 5000)),
        (
            b"names: [cat]\ntrain: .\nkpt_shape: [20000000, 3]\n",
            "data.yaml: kpt_shape gives 20000000 keypoints to each of 1 classes; together the limit is 1,000,000",
        ),
        (b"nc: 900000\nkpt_shape: [2, 3]\n", "kpt_shape gives 2 keypoints to each of 900,000 classes"),
        (f"{BOMB}\nnames: *a8\n".encode(), "data.yaml has more than 1,000,000 values"),
        (b"names: &a [*a]\n", "data.yaml has more than 1,000,000 values"),
    ],
)
def test_data_yaml_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "data.yaml").write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        YoloOptions(data=str(tmp_path), output="out").source()


CODES = ("02146", "12:30", "2.50", "yes", "null", "1e3", "2020-01-02", "1_000", "0x1F", " a ", "~", "")


@pytest.mark.parametrize(
    "names",
    [
        "[02146, 12:30, 2.50, yes, null, 1e3, 2020-01-02, 1_000, 0x1F, ' a ', ~, '']",
        "\n- 02146\n- 12:30\n- 2.50\n- yes\n- null\n- 1e3\n- 2020-01-02\n- 1_000\n- 0x1F\n- ' a '\n- ~\n-",
        "\n".join(["", *(f"  {index:02}: {name!r}" for index, name in enumerate(CODES))]),
        "{0: 02146, 1: 12:30, 2: 2.50, 3: yes, 4: null, 5: 1e3, 6: 2020-01-02, 7: 1_000, 08: 0x1F, 9: ' a ', "
        "010: ~, 11: ''}",
    ],
)
def test_names_are_the_texts_of_data_yaml(tmp_path, names):
    (tmp_path / "0123").mkdir()
    (tmp_path / "data.yaml").write_text(f"names: {names}\nnc: 012\ntrain: 0123\n")
    assert category_names(tmp_path) == CODES


def test_names_of_merged_keys(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "data.yaml").write_text("base: &base {names: [010, no]}\n<<: *base\ntrain: images\ntest: ~\n")
    assert category_names(tmp_path) == ("010", "no")


@pytest.mark.parametrize(
    ("text", "names", "line"),
    [
        ("cat\n\ndog\n", ("cat", "", "dog"), 2),
        ("\ncat\r\n \r\ndog\n\n\n", ("", "cat", "", "dog"), 1),
        ("\ufeffcat\rbig\u2028dog \n\t\n", ("cat", "big\u2028dog"), 0),
    ],
)
def test_lines_of_classes_txt_are_classes(tmp_path, text, names, line):
    (tmp_path / "classes.txt").write_bytes(text.encode())
    assert category_names(tmp_path) == names
    warnings = YoloOptions(data=str(tmp_path), output="out").source().warnings
    assert [warning.partition(" is blank")[0] for warning in warnings] == (
        [f"{tmp_path}/classes.txt: line {line}"] if line else []
    )


def category_names(folder) -> tuple[str, ...]:
    return tuple(category.name for category in YoloOptions(data=str(folder), output="out").source().categories)


def test_folder_without_names_of_classes(tmp_path):
    def message() -> str:
        with pytest.raises(ConfigError) as caught:
            YoloOptions(data=str(tmp_path), output="out").source()
        return str(caught.value)

    (tmp_path / "images").mkdir()
    reason = f"{tmp_path} has neither data.yaml nor classes.txt, so the names of the classes are unknown"
    cure = f"rite them into {tmp_path}/classes.txt, one per line, in the order of their numbers in the label files"
    assert message() == f"{reason}. W{cure}"
    for name in ("sets/coco8/coco8.yaml", "own/data.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert message() == f"{reason}. Give a folder that has one (own/data.yaml, sets/coco8/coco8.yaml), or w{cure}"


def test_validation_is_val(tmp_path):
    (tmp_path / "data.yaml").write_text("names: [cat]\ntrain: images/a\nvalidation: images/b\n")
    for folder in ("a", "b"):
        (tmp_path / "images" / folder).mkdir(parents=True)
    source = YoloOptions(data=str(tmp_path), output="out").source()
    assert source.splits == ("train", "val")
    assert [(folder.prefix, folder.split) for folder in source.folders] == [
        ("images/a/", "train"),
        ("images/b/", "val"),
    ]


def test_folders_of_labels_have_no_images(tmp_path):
    """Drawings of labels, beside them for example, are no further images."""
    write_files(tmp_path, {"data.yaml": "names: [cat]\ntrain: images", "images/1.jpg": b"", "labels/1.txt": LINE})
    source = YoloOptions(data=str(tmp_path), output="out").source()
    assert [(folder.prefix, folder.has_images) for folder in source.folders] == [("images/", True), ("labels/", False)]


def test_paths_begin_at_one_folder(tmp_path):
    with pytest.raises(ConfigError, match="begin at one folder"):
        YoloOptions(data=str(tmp_path), images=("a", "b"), output="out").source()


@pytest.mark.parametrize(
    ("fields", "task", "text"),
    [
        ("all", "", "score or track_id"),
        ("colour", "", "score or track_id"),
        ("image.score", "", "score or track_id"),
        ("score", "pose", "lines are of the task pose"),
    ],
)
def test_fields_that_lines_do_not_have(fields, task, text):
    with pytest.raises(ConfigError, match=text):
        _box_fields(YoloOptions(data="d", output="out", fields=fields), task)


@pytest.mark.parametrize(
    ("fields", "task", "columns"), [("all", "", ()), ("colour,score", "", ("score",)), ("score", "pose", ())]
)
def test_fields_of_other_sets_are_not_those_of_lines(fields, task, columns):
    assert _box_fields(YoloOptions(data="d", output="out", fields=fields).as_part(), task) == columns


@pytest.mark.parametrize(
    ("image", "images", "labels", "label"),
    [
        ("x/images/train/1.jpg", "x/images", ["data/labels/train/1.txt"], "data/labels/train/1.txt"),
        ("x/images/train/1.jpg", "x", ["data/labels/train/1.txt"], "data/labels/train/1.txt"),
        ("x/images/train/1.jpg", "x/images/train", ["data/labels/train/1.txt"], "data/labels/train/1.txt"),
        ("x/train/1.jpg", "x", ["data/boxes/train/1.txt"], "data/boxes/train/1.txt"),
        ("x/images/1.jpg", "x", ["x/labels/1.txt", "data/labels/1.txt"], "x/labels/1.txt"),
        ("x/images/1.jpg", "x", ["data/labels/2.txt"], "x/labels/1.txt"),
    ],
)
def test_labels_are_looked_for_below_data(tmp_path, image, images, labels, label):
    for name in (image, *labels, "data/classes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("cat\n")
    read = source(YoloOptions(data=str(tmp_path / "data"), images=[str(tmp_path / images)], output="out"))
    name = image.removeprefix(f"{images}/")
    assert (tmp_path / images / read.label_name(name)).resolve() == tmp_path / label
    listed = [folder.path for folder in read.folders]
    assert any(str(tmp_path / label).startswith(f"{path}/") for path in listed) or not (tmp_path / label).exists()


def test_labels_of_two_folders_below_data_are_refused(tmp_path):
    for name in ("x/images/1.jpg", "data/train/labels/1.txt", "data/val/labels/1.txt", "data/classes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("cat\n")
    with pytest.raises(ConfigError, match=r"data/train/ and .*data/val/ have label files of the same names"):
        source(YoloOptions(data=str(tmp_path / "data"), images=[str(tmp_path / "x")], output="out"))


def write_folders(folder, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "1.jpg").write_bytes(b"")


@pytest.mark.parametrize(
    ("train", "val"),
    [("/content/set/train/images", "/content/set/val/images"), ("C:\\a b\\train\\images", "D:\\val\\images")],
)
def test_absolute_paths_of_another_machine(tmp_path, train, val):
    write_folders(tmp_path, "train/images", "val/images")
    (tmp_path / "data.yaml").write_text(f"train: {train}\nval: {val}\nnames: [cat]\n")
    found = source(YoloOptions(data=str(tmp_path), output="out"))
    assert [folder.path for folder in found.folders] == [f"{tmp_path}/train/images", f"{tmp_path}/val/images"]
    assert found.warnings == (
        f"{tmp_path}/data.yaml: train is {train}, which does not exist, so {tmp_path}/train/images is read",
        f"{tmp_path}/data.yaml: val is {val}, which does not exist, so {tmp_path}/val/images is read",
    )


@pytest.mark.parametrize(
    ("folders", "val", "cure"),
    [
        (("a b/train/images", "a b/val/images"), "val/images", "Add --images '{}/a b'"),
        (("train/images",), "val/images", "Correct the path, or remove val from the file"),
        (("a/train/images", "train/images"), "/x/val/images", "Correct the path, or remove val from the file"),
    ],
)
def test_cure_of_path_that_does_not_exist(tmp_path, folders, val, cure):
    write_folders(tmp_path, *folders)
    (tmp_path / "data.yaml").write_text(f"train: train/images\nval: {val}\nnames: [cat]\n")
    with pytest.raises(ConfigError) as caught:
        source(YoloOptions(data=str(tmp_path), output="out"))
    assert str(caught.value).endswith(f" does not exist. {cure.format(tmp_path)}")
    if "--images" in cure:
        assert source(YoloOptions(data=str(tmp_path), output="out", images=(f"{tmp_path}/a b",))).images


@pytest.mark.parametrize(
    ("lines", "is_plain"),
    [
        (f"{LINE}\n1 .25 0.5 0.125 1.", True),
        (f"{LINE}\r\n1  0.5 0.5 0 0 \r\n", True),
        ("", True),
        (f"{LINE}\n\n1 0.5 0.5 0.1 0.1", False),  # places have lines
        (f"{LINE}\n0.0 0.50 0.5 0.2 0.4", False),  # repeated
        ("2 0.5 0.5 0.2 0.4", False),
        ("0.5 0.5 0.5 0.2 0.4", False),
        ("0 0.5 0.5 1.005 0.4", False),
        ("0 0.5 0.5 -0.1 0.4", False),
        ("0 0.5 0.5 0.2.1 0.4", False),
        ("0 0.5 0.5 0.2\n0.4 0 0.5 0.5 0.2 0.4", False),
        (f"{LINE} 0.4", False),
        ("\ufeff" + LINE, False),
    ],
)
def test_plain_boxes_are_read_as_lines(lines, is_plain, monkeypatch):
    assert (read_yolo._plain_boxes(lines.encode(), DETECT) is not None) == is_plain
    image = parsed(lines, DETECT)
    monkeypatch.setattr(read_yolo, "_plain_boxes", lambda *_: None)
    assert image == parsed(lines, DETECT)


@pytest.mark.parametrize("rules", [SEGMENT, OBB, POSE])
def test_lines_of_a_task_are_no_plain_boxes(rules):
    assert read_yolo._plain_boxes(LINE.encode(), rules) is None
