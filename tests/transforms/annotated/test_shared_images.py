"""Images that several label files annotate, or several entries of one."""

from collections.abc import Sequence

import numpy as np
import pytest

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.inputs.splits import name_id
from recordmill.transforms.annotated.shared_images import COPY, ENTRIES, FILES, Clash, check_clashes, drop_copies
from recordmill.transforms.annotated.source import SourceFolder
from recordmill.transforms.join.match_blocks import FileState
from tests.transforms.annotated.line_format import LineOptions

BOX = "cat 0 0 4 3"


def write(folder, files: dict[str, str]) -> LineOptions:
    """Return the options of a data set with these label files."""
    for name, text in files.items():
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_text(text)
    return LineOptions(data=str(folder / "data"), output="out")


def rows_of(rows: Sequence[tuple], entries: Sequence[str] = ()) -> Block:
    """Return a Block of rows (label file, image, state, split)."""
    files = sorted({row[0] for row in rows})
    state, split = ([row[index] if len(row) > index else 0 for row in rows] for index in (2, 3))
    return Block(
        image_id=np.array([name_id(row[1]) for row in rows], np.int64),
        source=np.array([files.index(row[0]) for row in rows], np.int64),
        part=np.arange(len(rows)),
        file_name=ragged_texts([row[1] for row in rows]),
        split=np.array(split, np.int64),
        state=np.array(state, np.int64),
        label_file=ragged_texts([row[0] for row in rows]),
        label_entry=ragged_texts(entries or [""] * len(rows)),
    )


FILES_OF_A_SET = {"v.rows": f"1.jpg {BOX}", "v copy.rows": f"1.jpg {BOX}", "v2.rows": f"1.jpg dog {BOX[4:]}"}


@pytest.mark.parametrize(
    ("rows", "images", "clashes"),
    [
        ([("v.rows", "1.jpg"), ("v.rows", "1.jpg"), ("v2.rows", "2.jpg")], ["1.jpg", "1.jpg", "2.jpg"], []),
        (
            [("v.rows", "1.jpg"), ("v.rows", "1.jpg"), ("v copy.rows", "1.jpg"), ("v copy.rows", "1.jpg")],
            ["1.jpg", "1.jpg"],
            [Clash(COPY, "v copy.rows", "v.rows")],
        ),
        ([("v2.rows", "1.jpg"), ("v.rows", "1.jpg")], ["1.jpg"] * 2, [Clash(FILES, "v.rows", "v2.rows")]),
        (
            [("v2.rows", "1.jpg"), ("v.rows", "1.jpg"), ("v copy.rows", "1.jpg"), ("v.rows", "0.jpg")],
            ["1.jpg", "1.jpg", "0.jpg"],
            [Clash(COPY, "v copy.rows", "v.rows"), Clash(FILES, "v.rows", "v2.rows")],
        ),
        # An image in two splits, and an image without a file, are no clash.
        ([("v2.rows", "1.jpg", 0, 1), ("v.rows", "1.jpg", 0, 0)], ["1.jpg"] * 2, []),
        ([("v2.rows", "1.jpg", FileState.MISSING), ("v.rows", "1.jpg", FileState.MISSING)], ["1.jpg"] * 2, []),
    ],
)
def test_files_that_share_images(tmp_path, rows, images, clashes):
    block, found = drop_copies(rows_of(rows), write(tmp_path, FILES_OF_A_SET).source())
    assert (block.file_name.texts(), found, block.label_file) == (images, clashes, None)


@pytest.mark.parametrize(
    ("rows", "entries", "clashes"),
    [
        (
            [("v.rows", "1.jpg"), ("v.rows", "2.jpg"), ("v.rows", "1.jpg")],
            ["task 1", "task 2", "task 3"],
            [Clash(ENTRIES, "v.rows", "1.jpg is task 1 and task 3")],
        ),
        ([("v.rows", "1.jpg"), ("v.rows", "1.jpg")], ["", ""], []),
        ([("v.rows", "1.jpg", FileState.MISSING)] * 2, ["task 1", "task 2"], []),
        ([("v.rows", "1.jpg", 0, 0), ("v.rows", "1.jpg", 0, 1)], ["task 1", "task 2"], []),
    ],
)
def test_entries_of_one_image(tmp_path, rows, entries, clashes):
    assert drop_copies(rows_of(rows, entries), write(tmp_path, FILES_OF_A_SET).source())[1] == clashes


def test_copies_are_a_warning(tmp_path):
    options = write(tmp_path, FILES_OF_A_SET)
    clashes = [Clash(COPY, f"{number}.rows", "v.rows") for number in (3, 1, 1, 2, 4, 5, 6, 7)]
    assert [*check_clashes(clashes, options, options.source())] == [
        "label files with the same bytes count once: 1.rows equals v.rows, 2.rows equals v.rows, 3.rows equals v.rows, "
        "4.rows equals v.rows, 5.rows equals v.rows and 2 more"
    ]


def test_entries_are_an_error(tmp_path):
    options = write(tmp_path, FILES_OF_A_SET)
    with pytest.raises(CollidingImagesError, match=r"^v\.rows has several entries of one image: 1\.jpg is task 1 and"):
        [*check_clashes([Clash(ENTRIES, "v.rows", "1.jpg is task 1 and task 3")], options, options.source())]


VERSIONS = [f"1.jpg {BOX}\n2.jpg {BOX}", f"2.jpg {BOX}\n1.jpg {BOX}\n3.jpg {BOX}"]


@pytest.mark.parametrize(
    ("names", "prefix", "numbers", "more"),
    [
        (["a.rows", "b.rows"], "", "a.rows (2 images, 2 shared), b.rows (3 images, 2 shared)", []),
        (
            ["sub/a.rows", "sub/b.rows"],
            "",
            "sub/a.rows (2 images, 2 shared), sub/b.rows (3 images, 2 shared)",
            ["DATA"],
        ),
        (["sub/a.rows", "sub/b.rows"], "sub/", "sub/a.rows (2 images, 2 shared), sub/b.rows (3 images, 2 shared)", []),
    ],
)
def test_files_are_an_error_with_the_command_that_reads_one(tmp_path, names, prefix, numbers, more):
    texts = (version.replace("\n", f"\n{prefix}") for version in VERSIONS)
    options = write(tmp_path, dict(zip(names, (prefix + text for text in texts), strict=True)))
    data, clash = options.data, Clash(FILES, *names)
    images = f" --images {data} --match suffix" if more else ""
    with pytest.raises(ConfigError) as caught:
        [*check_clashes([clash], options, options.source())]
    assert str(caught.value) == (
        f"{data}: several label files annotate the same images, so records would have boxes several times: {numbers}. "
        f"Move all but one to another folder, or convert one: recordmill convert {data}/{names[1]} -o out --format "
        f"lines{images}"
    )


@pytest.mark.parametrize(("given", "flags"), [({"match": "name"}, " --match name"), ({}, "")])
def test_the_command_has_folders_of_images_and_flags_of_the_format(given, flags, tmp_path):
    write(tmp_path, {"a.rows": VERSIONS[0], "b.rows": VERSIONS[1]})
    options = LineOptions(data=str(tmp_path / "data"), output="an out", images=["the images"], split="val", **given)
    source = options.source()
    folders = SourceFolder("the images"), source.folders[0]._replace(has_images=False)
    object.__setattr__(source, "folders", folders)
    with pytest.raises(ConfigError, match=rf"b\.rows -o 'an out' --format lines --images 'the images'{flags}$"):
        [*check_clashes([Clash(FILES, "a.rows", "b.rows")], options, source)]


def test_files_of_one_image_have_no_command(tmp_path):
    options = write(tmp_path, {f"{number}.rows": f"1.jpg {BOX}" for number in range(7)})
    clashes = [Clash(FILES, "0.rows", f"{number}.rows") for number in range(1, 7)]
    with pytest.raises(ConfigError, match=r"0\.rows \(1 image, 1 shared\), .* and 2 more\. .* another folder$"):
        [*check_clashes(clashes, options, options.source())]
