import pytest
from msgspec.structs import replace

from recordmill.launch.terminal.console import terminal
from recordmill.launch.verbs.show import (
    bar,
    overview_lines,
    pad_text,
    print_records,
    record_lines,
    records_side_by_side,
)
from recordmill.schemas.errors import RecordError
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.show.choose_records import Choice, choose_records
from recordmill.transforms.show.find_shards import find_shards
from tests.transforms.show.records import example, write


@pytest.mark.parametrize("blocks", [True, False])
def test_bars_are_as_long_as_their_share(blocks):
    lengths = [len(bar(number, 10_000, 40, blocks)) for number in (10_000, 5_000, 2_500, 1, 0)]
    assert lengths == [40, 20, 10, 1, 0]
    assert bar(5, 5, 0, blocks) == ""


def test_wide_letters_take_two_columns():
    assert pad_text("猫猫猫", 8) == "猫猫猫  "
    assert pad_text("猫猫猫猫猫", 6) == "猫猫… "


@pytest.fixture
def manifest(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    return require_manifest(str(tmp_path))


def test_a_data_set(manifest):
    split = manifest.splits["train"]
    lines = list(overview_lines("a\x1b[2J", manifest, ["train"], 80, blocks=False))
    assert lines[0] == "coco in a\\x1b[2J: layout detection"
    assert lines[2].split() == ["images", "22", "of", "24", "(image_missing", "1,", "image_unreadable", "1)"]
    counts = dict(zip([category.name for category in manifest.categories], split.class_counts, strict=True))
    shown = {line.split()[0]: line.split() for line in lines[lines.index("") + 2 :]}
    assert {name: int(words[1]) for name, words in shown.items()} == counts
    lengths = [len(words[2]) for words in shown.values()]
    assert lengths == sorted(lengths, reverse=True)
    assert next(iter(shown)) == max(counts, key=lambda name: counts[name])


def test_of_manifest_that_was_edited(manifest):
    """An edited manifest may have fewer counts than classes, no shard, and reasons with control sequences."""
    split = manifest.splits["train"]
    images = replace(split.images, rejected={"\x1b[2J": 1})
    edited = replace(split, class_counts=split.class_counts[:2], shards=(), images=images)
    text = "\n".join(overview_lines("a", replace(manifest, splits={"train": edited}), ["train"], 80, blocks=False))
    assert "(\\x1b[2J 1)" in text
    assert "3 classes have none" in text
    assert list(overview_lines("a", replace(manifest, splits={}), [], 80, blocks=False))


def test_many_classes_are_cut_and_counted(manifest):
    categories = tuple(replace(manifest.categories[0], id=number, name=f"c{number}" * 40) for number in range(300))
    split = replace(manifest.splits["train"], class_counts=tuple(range(300)))
    manifest = replace(manifest, categories=categories, splits={"train": split, "val": split})
    lines = list(overview_lines("out", manifest, ["train", "val"], 100, blocks=True))
    assert any(line.startswith("c299") and line.split()[1:3] == ["299", "299"] for line in lines)
    assert "and 280 more, with 0 to 558 each" in lines
    assert "1 classes have none" in lines
    assert max(map(len, lines[lines.index("") :])) <= 100


@pytest.fixture
def records(tmp_path):
    examples = [example(name=[b"x" * 300], text=[b"\x1b[31mred", "\u202eevil".encode()]) for _ in range(3)]
    path = write(tmp_path / "x.tfrecord", *examples, example(only_here=[1.5], **{"name\n": [b"two\nlines"]}))
    return list(choose_records(find_shards(path, ""), Choice(), 9, lambda _: None))


@pytest.mark.parametrize("width", [1, 40, 80, 200])
def test_records_are_cut_to_width_and_escaped(records, width):
    lines = list(record_lines(records, width))
    assert all(char.isprintable() for line in lines for char in line)
    assert [line.split()[0] for line in lines[:5]] == ["feature", "name", "name\\n", "only_here", "text"]
    if width >= 200:
        assert max(map(len, lines)) <= width
        assert "\\x1b[31mred, \\u202eevil" in lines[4]
        assert "two lines" in lines[2]
        assert lines[3].split()[1:] == ["float", *["(none)"] * 3, "1.5"]


def test_as_many_side_by_side_as_there_is_room_for(records, capsys):
    assert [records_side_by_side(width) for width in (10, 80, 120, 300)] == [1, 1, 2, 3]
    print_records(terminal(), records, 120, name_layout=True)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("feature")]) == 2
    assert [line for line in lines if "layout" in line] == lines[:1]


def test_records_before_damaged_one_are_printed(records, capsys):
    def damaged():
        yield from records[:1]
        raise RecordError("damaged")

    with pytest.raises(RecordError):
        print_records(terminal(), damaged(), 200, name_layout=False)
    assert "xxxx" in capsys.readouterr().out
