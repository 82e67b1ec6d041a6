"""What pixels mean: names, tables, colours, unknown values."""

import re
import shlex
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import split_names
from recordmill.transforms.masks.class_values import ClassTable, parse_class_file, parse_names
from recordmill.transforms.masks.pixel_values import resolve_values
from recordmill.transforms.masks.sample_masks import MaskSample, sample_masks
from tests.literal_data import jpeg, png, write_files

BLACK, RED, WHITE = (0, 0, 0), (255, 0, 0), (255, 255, 255)
PALETTE = bytes((*BLACK, *RED, *WHITE))


def sampled(tmp_path, *masks: object, palette: bytes = b"") -> MaskSample:
    """Return the sample of masks with a column for each value."""
    files = {f"{number}.png": png(np.array([values], np.uint8), palette) for number, values in enumerate(masks)}
    write_files(tmp_path, files)
    return sample_masks([str(tmp_path / name) for name in files])


def table(text: str) -> ClassTable:
    """Return the classes of `--class-names`, or of a file that begins with its name."""
    name, newline, data = text.partition("\n")
    return ClassTable(
        parse_class_file(name, data.encode()) if newline else parse_names(split_names(text)), "--class-names"
    )


COLOURED = bytes(range(256)) * 3
TO_ROWS = {0: 0, 7: 1, 255: 2, 1: 256, 2: 256}
GREYS = b"".join(bytes((number,) * 3) for number in range(256))


@pytest.mark.parametrize(
    ("values", "palette", "text", "void", "expected"),  # expected changes: of values that are not written as 255
    [
        ([0, 1, 255], b"", "sky,car", (), ({0: "sky", 1: "car"}, (), b"")),
        ([0, 1, 2], b"", "sky,car", (2,), ({0: "sky", 1: "car"}, (2,), b"")),
        ([0, 1], b"", "other,sky", (0,), ({1: "sky"}, (0,), b"")),
        ([0, 7], b"", "sky=0,car=7", (), ({0: "sky", 7: "car"}, (), b"")),
        ([0, 7], b"", "a.csv\nid,name\n0,\n7,car\n", (), ({7: "car"}, (0,), b"")),
        # 255 is a class
        ([0, 255], b"", "background=0,polyp=255", (), ({0: "background", 1: "polyp"}, (), bytes((*BLACK, *WHITE)))),
        ([0, 128, 255], b"", "a=0,b=255", (128,), ({0: "a", 1: "b"}, (2,), bytes((*BLACK, *WHITE, 128, 128, 128)))),
        ([0, 7, 255], COLOURED, "a=0,b=7,c=255", (), ({0: "a", 1: "b", 2: "c"}, (), b"", TO_ROWS)),
        ([0, 7, 255], COLOURED, "a=0,c=255", (7,), ({0: "a", 1: "c"}, (7,), b"", {0: 0, 255: 1, 1: 256, 2: 256})),
        # grey that is stored as RGB
        ([BLACK, (1, 1, 1), WHITE], b"", "sky,car", (), ({0: "sky", 1: "car"}, (), GREYS)),
        # a palette: indices, or the colours that a table has
        ([0, 1], PALETTE, "sky,car", (), ({0: "sky", 1: "car"}, (), b"")),
        ([0, 1], PALETTE, "sky=#000000,car=#ff0000", (), ({0: "sky", 1: "car"}, (), bytes((*BLACK, *RED)))),
        (
            [BLACK, RED],
            b"",
            "a.csv\nname,r,g,b\nsky,0,0,0\ncar,255,0,0",
            (),
            ({0: "sky", 1: "car"}, (), bytes((*BLACK, *RED))),
        ),
        ([BLACK, RED], b"", "sky=#000000,car=#ff0000", (0,), ({1: "car"}, (0,), bytes((*BLACK, *RED)))),
        # a table of colours, and masks of its rows; or black and white that are grey
        ([0, 1, 2], b"", "c.csv\nname,r,g,b\na,0,0,0\nb,255,0,0\nc,0,0,9", (), ({0: "a", 1: "b", 2: "c"}, (), b"")),
        ([0, 255], b"", "road=#ffffff,rest=#000000", (), ({0: "road", 1: "rest"}, (), bytes((*WHITE, *BLACK)))),
    ],
)
def test_pixels(values, palette, text, void, expected, tmp_path):
    classes = resolve_values(table(text), sampled(tmp_path, values, palette=palette), frozenset(void), "DATA")
    names = {category.id: category.name for category in classes.segments}
    void = tuple(value for value, new_value in classes.changes if new_value == 255)
    changes = {value: new_value for value, new_value in classes.changes if new_value != 255}
    assert (names, void, classes.colours, *((changes,) if changes else ())) == expected


@pytest.mark.parametrize(
    ("values", "text", "cure"),
    [
        ([0, 1, 2, 255], "", "class_0,class_1,class_2"),
        ([0, 40], "", "class_0=0,class_40=40"),
        ([0, 255], "", "background=0,foreground=255"),
        ([BLACK, WHITE], "", "background=0,foreground=255"),
        ([BLACK, RED], "", "class_0=#000000,class_1=#ff0000"),
        ([0, 255], "background,polyp", "background=0,polyp=255"),
        ([0, 255], "polyp", "background=0,polyp=255"),
        ([0, 255], "sky,car,dog", "sky=0,car=255"),
        ([0, 255], "a.csv\nname,value\n,0", "background=0,foreground=255"),
        ([BLACK, RED], "sky,car", "class_0=#000000,class_1=#ff0000"),
    ],
)
def test_the_cure_names_the_classes(values, text, cure, tmp_path):
    """The printed flag is read as printed."""
    sample = sampled(tmp_path, values)
    with pytest.raises(ConfigError) as caught:
        resolve_values(table(text) if text else ClassTable(), sample, frozenset(), "DATA")
    words = shlex.split(str(caught.value))
    place = max(place for place, word in enumerate(words) if word == "--class-names")
    printed = words[place + 1].rstrip(".")
    assert printed == cure
    assert resolve_values(table(printed), sample, frozenset(), "DATA").segments


@pytest.mark.parametrize(
    ("masks", "text"),
    [
        ([[0, 1, 2], [0, 2]], "sky,car"),  # half of the masks have a value without a name
        ([[0, 1]], "sky=0,car=300"),
        ([[0, 1]], "sky,sky"),
        ([[0, 1]], ",".join(f"c{number}" for number in range(256))),
        ([[0, 1]], "sky=0,car=0"),
        ([[RED, BLACK]], "sky=#ff0000,car=#ff0000"),
        ([[[red, 7, 9] for red in range(80)]], ""),
    ],
)
def test_refused(masks, text, tmp_path):
    with pytest.raises(ConfigError):
        resolve_values(table(text) if text else ClassTable(), sampled(tmp_path, *masks), frozenset(), "DATA")


@pytest.mark.parametrize(
    ("values", "text", "pixels"),
    [
        ([0, 9], "sky,car", "values 9 (50%)"),
        ([BLACK, (9, 9, 9)], "sky,car", "values 9 (50%)"),
        ([BLACK, RED], "sky=#000000,car=#ffffff", "colours #ff0000 (50%)"),
        ([9], "sky,car", "values 9 (100%)"),
        ([0, 1, 2, 3], "c.csv\nname,r,g,b\na,0,0,0\nb,255,0,0\nc,0,0,9", "values 3 (25%)"),
    ],
)
def test_pixels_without_a_class(values, text, pixels, tmp_path):
    with pytest.raises(ConfigError, match=f"does not name the {re.escape(pixels)} in 1 of 1"):
        resolve_values(table(text), sampled(tmp_path, values), frozenset(), "DATA")


@pytest.mark.parametrize("other", ["I;16", "RGB"])
def test_value_of_16_bits_without_a_class(other, tmp_path):
    Image.fromarray(np.array([[0, 300]], np.uint16)).save(tmp_path / "a.png")
    Image.new(other, (1, 2), 0).save(tmp_path / "b.png")
    sample = sample_masks([str(tmp_path / "a.png"), str(tmp_path / "b.png")])
    with pytest.raises(ConfigError, match="does not name the values 300 \\(25%\\) in 1 of 2"):
        resolve_values(table("sky,car"), sample, frozenset(), "DATA")


def test_one_mask_with_another_value_is_left_to_the_rejects(tmp_path):
    classes = resolve_values(table("sky,car"), sampled(tmp_path, [0, 1], [0, 1], [0, 9]), frozenset(), "DATA")
    assert [category.id for category in classes.segments] == [0, 1]


def test_jpegs_are_refused_and_broken_masks_skipped(tmp_path):
    write_files(tmp_path, {"a.png": b"\x89PNG", "b c/1.jpg": jpeg(1)})
    assert not sample_masks([str(tmp_path / "a.png"), str(tmp_path / "missing.png")]).masks
    with pytest.raises(ConfigError) as caught:
        sample_masks([str(tmp_path / "b c" / "1.jpg")])
    assert f"-threshold 50% {shlex.quote(str(tmp_path / 'b c'))}/*.jpg" in str(caught.value)


def test_grey_of_two_bits_has_its_values(tmp_path):
    """Pillow multiplies them by 85."""
    chunks = (
        (b"IHDR", bytes((0, 0, 0, 4, 0, 0, 0, 1, 2, 0, 0, 0, 0))),
        (b"IDAT", zlib.compress(b"\0\x1b")),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    write_files(tmp_path, {"a.png": b"\x89PNG\r\n\x1a\n" + b"".join(packed)})
    assert sorted(sample_masks([str(tmp_path / "a.png")]).numbers) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "sky\r\n car \n\n", [("sky", 0, None), ("car", 1, None)]),
        ("_classes.csv", "\ufeffPixel Value, Class\n0, a\n7, b\n", [("a", 0, None), ("b", 7, None)]),
        ("a.csv", "r;g;b;Name\n0;0;255;sky", [("sky", 0, 255)]),
        ("labelmap.txt", "# label:color_rgb:parts:actions\na:0,0,1::\nb c:1,0,0::", [("a", 0, 1), ("b c", 1, 65536)]),
        ("label_colors.txt", "64 128 64\tAnimal\n192 0 128\t\tArch", [("Animal", 0, 0x408040), ("Arch", 1, 0xC00080)]),
        ("a.txt", f"a:{'9' * 5000},0,0::", [(f"a:{'9' * 5000},0,0::", 0, None)]),
        ("objectInfo150.txt", "Idx\tRatio\tName\n1\t0.1\twall, x\n", [("", 0, None), ("wall, x", 1, None)]),
    ],
)
def test_class_files(name, text, expected):
    assert [tuple(one) for one in parse_class_file(name, text.encode())] == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b""),
        ("a.txt", b"sky\n\ncar"),
        ("a.txt", b"\xff"),
        ("a.csv", b"a,b\n1,2"),
        ("a.csv", b"name,value\n"),
        ("a.csv", b"name,value\nsky,x"),
        ("a.csv", b"name,value\nsky"),
        ("a.csv", b"name,r,g,b\nsky,0,0,256"),
        ("a.csv", b"name,value\nsky," + b"9" * 5000),
        ("a.csv", b"name,value\n" + b"9" * 200_000),
    ],
)
def test_class_files_that_are_refused(name, data):
    with pytest.raises(ConfigError):
        parse_class_file(name, data)


def test_the_line_of_a_faulty_colour():
    with pytest.raises(ConfigError, match=r"labelmap\.txt, line 3: 0,0,256 is not a colour"):
        parse_class_file("labelmap.txt", b"# label:color_rgb:parts:actions\na:0,0,1::\nb:0,0,256::")


@pytest.mark.parametrize("text", ["a=1,b", "a=1,b=#000000"])
def test_names_that_are_refused(text):
    with pytest.raises(ConfigError):
        parse_names(split_names(text))
