"""What readers, statistics, the page, `show` and `extract` say of masks and depth maps is what their files hold."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from recordmill import open as open_data_set
from recordmill.transforms.dataset.dataset_folder import read_statistics
from recordmill.transforms.insight.charts import format_percent
from tests.conftest import shard_bytes

NAMES = {0: "background", 1: "road", 7: "sky", 9: "never"}
SCALE = 0.00390625


class Pairs(NamedTuple):
    """Folder of a data set, and the masks and depth maps in it, by split and name without suffix."""

    folder: Path
    masks: dict[tuple[str, str], np.ndarray]
    depths: dict[tuple[str, str], np.ndarray]


def draw_pairs(folder: Path) -> Pairs:
    """Draw images, masks and depth maps of different sizes in two splits."""
    rng = np.random.default_rng(4)
    masks, depths = {}, {}
    for split, number in (("train", 0), ("train", 1), ("train", 2), ("val", 3)):
        size = 40 + 9 * number, 60 - 7 * number
        mask = rng.choice([0, 1, 7, 255] if split == "train" else [1, 255], size).astype(np.uint8)
        depth = rng.integers(0, 1 << 16, size).astype(np.uint16)
        depth[:5] = 0
        pictures = {"images": rng.integers(0, 256, (*size, 3), np.uint8), "masks": mask, "depth": depth}
        for kind, pixels in pictures.items():
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / kind / split / f"{number}.png")
        masks[split, str(number)], depths[split, str(number)] = mask, depth
    rows = "".join(f"{value},{name}\n" for value, name in NAMES.items())
    (folder / "_classes.csv").write_text(f"Pixel Value,Class\n{rows}")
    return Pairs(folder, masks, depths)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Pairs:
    return draw_pairs(tmp_path_factory.mktemp("pairs") / "data")


@pytest.fixture
def out(pairs, tmp_path, recordmill) -> Path:
    done = convert_pairs(recordmill, pairs.folder, tmp_path / "out")
    assert done.code == 0, done
    return tmp_path / "out"


def convert_pairs(run, folder: Path, out: Path):
    return run("convert", folder, "--depth-images", folder / "depth", "--depth-scale", SCALE, "--output", out)


def name_of(record: dict) -> str:
    return Path(record["file_name"].decode()).stem


def test_maps_are_those_of_their_files_everywhere(pairs, out, tmp_path, recordmill):
    data = open_data_set(str(out))
    assert f", {len(NAMES)} classes, " in repr(data)
    for split in ("train", "val"):
        records = {name_of(record): record for record in data[split]}
        assert {(split, name) for name in records} == {key for key in pairs.masks if key[0] == split}
        for name, record in records.items():
            assert (record["semantic"] == pairs.masks[split, name]).all()
            assert record["depth"].dtype == np.float32
            assert (record["depth"] == pairs.depths[split, name] * np.float32(SCALE)).all()
        check_statistics(pairs, out, split)
    check_page_and_terminal(pairs, out, recordmill)
    assert recordmill("verify", out, "--check", "decode").code == 0
    check_round_trip(pairs, out, tmp_path, recordmill)


def check_statistics(pairs: Pairs, out: Path, split: str) -> None:
    statistics = read_statistics(str(out), [split])[split]
    masks = [mask for key, mask in pairs.masks.items() if key[0] == split]
    counts = Counter(np.concatenate([mask.ravel() for mask in masks]).tolist())
    expected = [(name, value, counts[value]) for value, name in NAMES.items()]
    rows = [(row.name, row.value, row.pixels) for row in statistics.pixels]
    assert rows == [*expected, ("unknown", 255, counts[255])]
    images = {name: sum((mask == value).any() for mask in masks) for value, name in NAMES.items()}
    assert {row.name: row.images for row in statistics.segments} == images
    depths = np.concatenate([depth.ravel() for key, depth in pairs.depths.items() if key[0] == split])
    metres = depths[depths > 0] * SCALE
    described = statistics.histograms["depth_m"]
    assert (described.count, described.least, described.largest) == (len(metres), metres.min(), metres.max())
    assert described.mean == pytest.approx(metres.mean())


def check_page_and_terminal(pairs: Pairs, out: Path, run) -> None:
    assert run("report", out).code == 0
    page = re.sub(r"<[^>]*>", " ", (out / "report.html").read_text())
    train = np.concatenate([mask.ravel() for key, mask in pairs.masks.items() if key[0] == "train"])
    for value in (0, 1, 7, 255):
        number = int((train == value).sum())
        assert re.search(rf"\b{number:,}\s+{re.escape(format_percent(number / len(train)))}", page)
    mask, depth = pairs.masks["val", "3"], pairs.depths["val", "3"] * SCALE
    shown = run("show", out, "--split", "val", "--count", 1).out
    size = f"{mask.shape[1]}x{mask.shape[0]}"
    shares = {name: format_percent((mask == value).mean()) for value, name in {**NAMES, 255: "unknown"}.items()}
    row = next(line for line in shown.splitlines() if "segmentation/class" in line)
    assert f"{size}: " in row
    assert f"road {shares['road']}" in row
    assert f"unknown {shares['unknown']}" in row
    assert "sky" not in row
    assert f"{size}: {depth[depth > 0].min():.5g} to {depth.max():.5g} m, mean" in shown


def check_round_trip(pairs: Pairs, out: Path, tmp_path: Path, run) -> None:
    """Files of `extract` hold the same pixels, and become the same shards again."""
    back = tmp_path / "back"
    assert run("extract", out, back).code == 0
    for maps, kind in ((pairs.masks, "masks"), (pairs.depths, "depth")):
        for (split, name), pixels in maps.items():
            with Image.open(back / kind / split / f"{name}.png") as image:
                assert (np.asarray(image) == pixels).all()
    assert convert_pairs(run, back, tmp_path / "again").code == 0
    shards = shard_bytes(out)
    assert len(shards) == 2
    assert {name: hash(data) for name, data in shard_bytes(tmp_path / "again").items()} == {
        name: hash(data) for name, data in shards.items()
    }
