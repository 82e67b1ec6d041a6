"""Formats of other packages, which entry points register."""

import logging
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from recordmill.launch.command_line.help import verb_help
from recordmill.launch.command_line.parser import parse
from recordmill.pipelines import choose_format
from recordmill.pipelines.formats import FORMATS, formats
from recordmill.transforms.annotated.format_options import registered_options
from tests.conftest import manifest_of, read_examples
from tests.jobs.folders import draw_all

Install = Callable[..., None]
POINTS = """\
'''points of images. A line has x, y.'''
from recordmill.formats import FormatOptions as Options, LabelledImage, Sample, SampleObject, Source, SourceFolder
from recordmill.formats import parser

def source(options):
    return Source(options.data, "points", (SourceFolder(options.data),), parse, is_label, label_name=label_name)

def is_label(name):
    return name.endswith(".pts")

def label_name(image):
    return image.rpartition(".")[0] + ".pts"

@parser
def parse(data, file):
    x, y = map(float, data.split())
    yield LabelledImage(Sample("", objects=(SampleObject("point", (x, y, 2.0, 2.0)),)))
"""


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Install]:
    """Install a package: its name, its module's text, its formats by their names. Formats are found again."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))

    def add(package: str, text: str, **names: str) -> None:
        about = site / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        points = "".join(f"{name} = {value}\n" for name, value in names.items())
        (about / "entry_points.txt").write_text(f"[recordmill.formats]\n{points}")
        (site / f"{package}.py").write_text(text)
        clear()

    def clear() -> None:
        formats.cache_clear()
        choose_format.convert_fields.cache_clear()
        registered_options.cache_clear()
        invalidate_caches()

    yield add
    monkeypatch.undo()
    clear()
    for path in site.glob("*.py"):
        sys.modules.pop(path.stem, None)


def images_with_points(folder: Path, *texts: str) -> Path:
    for number, text in enumerate(texts):
        draw_all(folder, [f"{number}.jpg"])
        (folder / f"{number}.pts").write_text(text)
    return folder


def test_converts_as_ours(install, tmp_path, recordmill):
    """Options may be empty: an alias of FormatOptions. Rejects name the label file."""
    install("dotted", POINTS, points="dotted")
    data = images_with_points(tmp_path / "data", "1 2", "3 4", "x 4")
    flags = ["--format", "points", "--output", tmp_path / "out"]
    done = recordmill("convert", data, *flags, "--dry-run")
    assert (done.code, "the parser of the format points failed on 2.pts: ValueError: could not con" in done.err) == (
        1,
        True,
    ), done
    (data / "2.pts").unlink()
    assert recordmill("convert", data, *flags).code == 0
    manifest = manifest_of(tmp_path / "out")
    assert (tmp_path / "out" / "points-train.tfrecord-00000-of-00001").is_file()
    assert manifest["splits"]["train"]["class_counts"] == [2]
    again = recordmill("convert", data, *flags)
    assert (again.code, "complete" in again.out + again.err) == (0, True), again
    assert "\npoints (of dotted): points of images\n" in verb_help("convert")
    assert "(default points)" in verb_help("convert", "points")


def test_recognised_by_names_and_contents(install, tmp_path):
    text = POINTS.replace("FormatOptions as Options", "FormatOptions")
    by_content = """
class Options(FormatOptions):
    endings = (".pts",)

    @classmethod
    def recognise_content(cls, head):
        return head.startswith(b"1 2")
"""
    install("dotted", text + by_content, points="dotted")
    data = images_with_points(tmp_path / "data", "1 2")
    command = parse(["convert", str(data), "-o", "out"])
    assert (command.format, command.notes[0]) == (formats()["points"], f"{data} is read as points: 0.pts")
    other = images_with_points(tmp_path / "other", "3 4")
    with pytest.raises(Exception, match=f"Run recordmill convert {other} -o OUT --format points"):
        parse(["convert", str(other), "-o", "out"])


def test_options_of_its_own(install):
    option = """
class Options(FormatOptions):
    radius_px: float = READ.opt("Radius of a point.", 1.0)
    masks: str = redefine_option(FormatOptions, "masks", "rle")
"""
    text = POINTS.replace("FormatOptions as Options", "FormatOptions, READ, redefine_option")
    install("dotted", text + option, points="dotted")
    command = parse(["convert", "d", "--format", "points", "--radius-px", "3", "-o", "out"])
    assert (command.options.radius_px, command.options.masks) == (3.0, "rle")
    with pytest.raises(Exception, match="--radius-px is a flag of points; --format is voc"):
        parse(["convert", "d", "--format", "voc", "--radius-px", "3", "-o", "out"])
    copied = pickle.loads(pickle.dumps(command.options))
    assert (copied, type(copied)) == (command.options, type(command.options))


def test_worker_without_the_package_says_so(install):
    install("dotted", POINTS, points="dotted")
    options = parse(["convert", "d", "--format", "points", "-o", "out"]).options
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    worker = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(options), capture_output=True)
    said = "this worker has no module dotted, which the format points needs. Install its package on workers\n"
    assert worker.stderr.decode().endswith(said)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("from recordmill.formats import FormatOptions as Options", "points", "broken has no function source(options)"),
        ("def source(options): ...", "points", "broken.Options is not a class of recordmill.formats.FormatOptions"),
        (
            "Options = dict\ndef source(options): ...",
            "points",
            "broken.Options is not a class of recordmill.formats.Fo",
        ),
        ("import no_such_module", "points", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "points", "ZeroDivisionError: division by zero"),
        (POINTS, "voc", "Recordmill has a format of this name"),
        (POINTS, "--points", "a name has lower-case letters, digits, - and _"),
        (
            POINTS.replace("FormatOptions as Options", "FormatOptions, READ")
            + "\nclass Options(FormatOptions):\n    overwrite: str = READ.opt('x', '')\n",
            "points",
            "its option overwrite has another type than --overwrite has in Recordmill",
        ),
        (
            POINTS.replace("FormatOptions as Options", "FormatOptions")
            + "\nclass Options(FormatOptions):\n    radius: int = 3\n",
            "points",
            "its option radius is not declared by READ.opt",
        ),
    ],
)
def test_unusable_package_is_left_out_with_a_warning(install, caplog, text, name, said):
    install("broken", text, **{name: "broken"})
    with caplog.at_level(logging.WARNING):
        assert formats() == FORMATS
        formats()
    (message,) = caplog.messages
    assert message.startswith(f"the format {name} of the package broken is left out: ")
    assert said in message


def test_package_that_ends_the_process_is_left_out(install, caplog):
    install("broken", "raise SystemExit(3)", points="broken")
    assert formats() == FORMATS
    assert caplog.messages == ["the format points of the package broken is left out: SystemExit: 3"]


def test_recognition_that_fails_is_a_warning(install, tmp_path, caplog):
    """Other formats are recognised all the same."""
    failing = """
class Options(FormatOptions):
    endings = (".pts",)

    @classmethod
    def recognise(cls, names):
        return names.no_such_attribute
"""
    install("dotted", POINTS.replace("FormatOptions as Options", "FormatOptions") + failing, points="dotted")
    data = draw_all(tmp_path / "data", ["cat/1.jpg", "dog/2.jpg"])
    assert parse(["convert", str(data), "-o", "out"]).format == FORMATS["folder"]
    assert caplog.messages[0].startswith("the format points of the package dotted is not recognised: AttributeError")


def test_source_that_fails_names_its_module(install, tmp_path, recordmill):
    text = "from recordmill.formats import FormatOptions as Options\n\ndef source(options):\n    return 1 / 0\n"
    install("dotted", text, points="dotted")
    data = images_with_points(tmp_path / "data", "1 2")
    refused = recordmill("convert", data, "--format", "points", "--output", tmp_path / "out")
    said = f"the function source of the format points failed on {data}: ZeroDivisionError: division by zero. This is a"
    assert (refused.code, said in refused.err) == (2, True), refused


def test_two_packages_of_one_name(install, caplog):
    install("first", POINTS, points="first")
    install("second", POINTS, points="second")
    assert formats()["points"].package == "first"
    assert caplog.messages == ["the format points of the package second is left out: first has a format of this name"]


def test_source_of_another_type(install, tmp_path, recordmill):
    install(
        "dotted",
        "from recordmill.formats import FormatOptions as Options\ndef source(options): return 1",
        points="dotted",
    )
    data = images_with_points(tmp_path / "data", "1 2")
    refused = recordmill("convert", data, "--format", "points", "--output", tmp_path / "out")
    assert (refused.code, "dotted.source returned int, not a Source" in refused.err) == (2, True), refused


def test_wrong_option_of_recognised_data_is_the_only_error(install, tmp_path):
    option = """
class Options(FormatOptions):
    radius_px: int = READ.opt("Radius of a point.", 1, ge=0)
    known_names = r"(.*/)?[0-9]+[.]pts"
"""
    text = POINTS.replace("FormatOptions as Options", "FormatOptions, READ")
    install("dotted", text + option, points="dotted")
    images_with_points(tmp_path / "data" / "part", "1 2")
    with pytest.raises(Exception, match=r"^--radius-px must be 0 or more \(got -1\)$"):
        parse(["convert", str(tmp_path / "data"), "--radius-px", "-1", "-o", "out"])


def test_labels_beside_images_in_folders_of_splits(install, tmp_path, recordmill):
    old = 'Source(options.data, "points", (SourceFolder(options.data),), parse, is_label, label_name=label_name)'
    new = "naming_source(options, find_labels(options, is_label), parse, label_name=label_name)"
    text = POINTS.replace("LabelledImage, ", "LabelledImage, find_labels, naming_source, ")
    assert old in text
    install("dotted", text.replace(old, new), points="dotted")
    for split in ("train", "valid"):
        images_with_points(tmp_path / "data" / split, "1 2", "3 4")
    archive = shutil.make_archive(f"{tmp_path}/data", "zip", tmp_path / "data")
    for number, data in enumerate((tmp_path / "data", archive)):
        out = tmp_path / f"out{number}"
        assert recordmill("convert", data, "--format", "points", "--output", out).code == 0
        splits = manifest_of(out)["splits"]
        assert {name: split["class_counts"] for name, split in splits.items()} == {"train": [2], "val": [2]}


def test_fields(install, tmp_path, recordmill):
    """A parser gives its fields without knowing which are requested."""
    given = 'fields={"score": x / 2, "pen": {"hue": "red"}, "difficult": True}'
    install("dotted", POINTS.replace("2.0, 2.0))", f"2.0, 2.0), {given})"), points="dotted")
    data = images_with_points(tmp_path / "data", "1 2")
    outcome = recordmill("convert", data, "--format", "points", "--output", tmp_path / "out", "--fields", "score")
    assert outcome.code == 0, outcome
    (warning,) = manifest_of(tmp_path / "out")["splits"]["train"]["warnings"]
    assert warning == "label files have fields that are not written. Add --fields pen.hue"
    (example,) = read_examples(tmp_path / "out")
    assert (example["image/object/score"], example["image/object/difficult"]) == ([0.5], [1])
