"""What a table is asked to do whose rows name pictures is checked at the door."""

import pytest

from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.images import PictureRules

GIVEN = {"rows": ("t.csv",), "output": "out"}
PICTURES = {"images": ("pics",), "image_column": "path"}


@pytest.mark.parametrize(
    ("changed", "faults"),
    [
        ({"images": ("pics",)}, ["--images would do nothing without --image-column"]),
        (
            {"raw_size": "2x2", "check": "none", "max_side": 9, "workers": 2},
            [
                f"--{name} would do nothing without --image-column"
                for name in ("raw-size", "check", "max-side", "workers")
            ],
        ),
        ({"image_column": "path"}, ["--image-column path names files: give --images, the folder that they are in"]),
        ({**PICTURES, "raw_size": "12"}, ["--raw-size '12' is no height and width in pixels: 224x224 for example"]),
        (
            {**PICTURES, "raw_size": "2x2", "format": "png", "check": "header"},
            [f"--{name} is of files, and --raw-size writes none" for name in ("check", "format")],
        ),
    ],
)
def test_faults(changed, faults):
    with pytest.raises(ConfigError) as caught:
        TableOptions(**GIVEN | changed)
    assert str(caught.value).split("; ") == faults


def test_what_decides_records_is_in_the_recipe_and_nothing_else():
    plain = TableOptions(**GIVEN)
    assert not plain.record_options.keys() & {"image_column", "raw_size", "check", "format", "max_side", "jpeg_quality"}
    files = TableOptions(**GIVEN, **PICTURES, max_side=64)
    assert files.record_options | plain.record_options == files.record_options
    assert files.record_options.keys() - plain.record_options.keys() == {
        *("image_column", "raw_size", "check", "format", "max_side", "jpeg_quality")
    }
    assert files.pictures == PictureRules("decode", max_side=64)
    assert TableOptions(**GIVEN, **PICTURES, raw_size="24x32").pictures == PictureRules("decode", raw_size=(24, 32))


def test_rows_are_known_by_their_picture_unless_there_is_a_key():
    of_picture = TableOptions(**GIVEN, **PICTURES).row_splits(("train",))
    assert (of_picture.key, of_picture.images, of_picture.columns) == ("path", ("pics",), ("path",))
    of_key = TableOptions(**GIVEN, **PICTURES, key="id").row_splits(("train",))
    assert (of_key.key, of_key.images, of_key.columns) == ("id", (), ("id",))
    chosen = TableOptions(**GIVEN, **PICTURES, key="id", columns=("a",))
    assert chosen.read_columns == ("a", "id", "path")
    assert chosen.written_columns == ("a",)
