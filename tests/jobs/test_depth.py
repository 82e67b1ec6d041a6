"""Depth maps beside the images of a YOLO data set, from end to end."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.beam import ReadDataset
from recordmill.schemas.errors import ConfigError
from tests.beam_pipeline import Pipeline
from tests.conftest import draw_jpeg, examples_by_name, manifest_of, rejects_of

WIDTH, HEIGHT = 40, 30
DEPTH = np.arange(WIDTH * HEIGHT, dtype=np.uint16).reshape(HEIGHT, WIDTH)
KEY = "image/depth/encoded"


def write(path: Path, pixels: np.ndarray) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three images with an object each, and their depth maps."""
    data = tmp_path / "data"
    for name in ("a", "b", "c"):
        draw_jpeg(data / "images" / "train" / f"{name}.jpg")
        label = data / "labels" / "train" / f"{name}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text("0 0.1 0.1 0.1 0.1\n")
        write(data / "depth" / "train" / f"{name}_depth.png", DEPTH + ord(name))
    (data / "data.yaml").write_text("train: images/train\nnames: [cat]\n")
    return tmp_path


def flags(folder: Path, *more: object, depth_folder: str = "data/depth") -> list[object]:
    depth = "--depth-images", folder / depth_folder, "--depth-scale", 0.002
    return ["convert", folder / "data", "--format", "yolo", "--output", folder / "out", *depth, *more]


def depth(example: dict) -> np.ndarray:
    with Image.open(io.BytesIO(example[KEY][0])) as image:
        assert (image.format, image.mode) == ("PNG", "I;16")
        return np.asarray(image)


def test_depth_maps_are_stored_unchanged(folder, recordmill):
    assert recordmill(*flags(folder)).code == 0
    examples = examples_by_name(folder / "out")
    assert sorted(examples) == [f"images/train/{name}.jpg" for name in "abc"]
    for name in "abc":
        stored = (folder / "data" / "depth" / "train" / f"{name}_depth.png").read_bytes()
        assert examples[f"images/train/{name}.jpg"][KEY] == [stored]
    manifest = manifest_of(folder / "out")
    assert (manifest["depth_scale"], manifest["parts"], manifest["features"]) == (0.002, ["depth", "category_id"], [])
    assert manifest["splits"]["train"]["annotations"]["depth_maps"] == 3


def test_depth_maps_in_a_zip(folder, recordmill):
    shutil.make_archive(str(folder / "depth"), "zip", folder / "data" / "depth")
    zipped = [*flags(folder)[:-4], "--depth-images", folder / "depth.zip", "--depth-scale", 1]
    assert recordmill(*zipped).code == 0
    assert len(examples_by_name(folder / "out")) == 3


def test_tiles_and_shrunk_images_have_their_part_of_the_map(folder, recordmill):
    assert recordmill(*flags(folder, "--tile", 20, "--keep-empty", 1)).code == 0
    tiles = examples_by_name(folder / "out")
    assert (depth(tiles["images/train/a_20_20.jpg"]) == DEPTH[20:, 20:] + ord("a")).all()
    assert recordmill(*flags(folder, "--max-side", 20, "--overwrite")).code == 0
    shrunk = examples_by_name(folder / "out")["images/train/b.jpg"]
    assert (depth(shrunk) == DEPTH[1::2, 1::2] + ord("b")).all()


@pytest.mark.parametrize("more", [(), ("--tile", 20)])
def test_images_without_a_usable_depth_map_are_rejects(folder, recordmill, more):
    maps = folder / "data" / "depth" / "train"
    (maps / "a_depth.png").unlink()
    (maps / "a_depth.png").mkdir()  # no file
    write(maps / "b_depth.png", DEPTH.T)
    write(maps / "c_depth.png", DEPTH.astype(np.uint8))
    shutil.copy(folder / "data" / "labels" / "train" / "a.txt", folder / "data" / "labels" / "train" / "d.txt")
    for name in ("d", "without object"):
        draw_jpeg(folder / "data" / "images" / "train" / f"{name}.jpg")
        write(maps / f"{name}_depth.png", DEPTH)
    write(maps / "e_depth.png", DEPTH)
    done = recordmill(*flags(folder, "--max-rejects", 0.9, *more))
    assert done.code == 0, done
    reasons = {reject["file_name"][-5]: (reject["what"], reject["reason"]) for reject in rejects_of(folder / "out")}
    assert reasons == {
        "a": ("image", "mask_missing"),
        "b": ("image", "mask_size_mismatch"),
        "c": ("image", "mask_kind"),
    }
    split = manifest_of(folder / "out")["splits"]["train"]
    assert split["annotations"]["of_rejected_images"] == 5
    expected = (1, 1) if more else (2, 0)  # all tiles of the image without an object are empty
    assert (split["images"]["written"], split["annotations"].get("in_no_tile", 0)) == expected
    assert [text for text in split["warnings"] if "e_depth.png" in text]


def test_missing_depth_maps_end_the_job_before_an_image_is_read(folder, recordmill):
    (folder / "data" / "depth" / "train" / "b_depth.png").unlink()
    done = recordmill(*flags(folder))
    assert done.code != 0
    assert "No image was read" in done.err


def test_changed_depth_maps_are_noticed(folder, recordmill):
    assert recordmill(*flags(folder)).code == 0
    write(folder / "data" / "depth" / "train" / "a_depth.png", DEPTH * 3)
    assert "--add" in recordmill(*flags(folder)).err
    assert recordmill(*flags(folder, "--add", "--sync")).code == 0
    assert (depth(examples_by_name(folder / "out")["images/train/a.jpg"]) == DEPTH * 3).all()
    annotations = manifest_of(folder / "out")["splits"]["train"]["annotations"]
    assert (annotations["depth_maps"], annotations["replaced"]) == (3, 2)


@pytest.mark.parametrize(
    ("maps", "depth_folder"),
    [
        ("depth/train", "data"),
        ("depth/train", "data/../data/"),
        ("images/train", "data"),
        ("images/train", "data/images"),
    ],
)
def test_folder_of_depth_maps_may_have_the_images_too(maps, depth_folder, folder, recordmill):
    """Depth maps beside the images are no images."""
    for path in (folder / "data" / "images" / "train").iterdir():
        Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    for path in (folder / "data" / "depth" / "train").iterdir():
        path.rename(folder / "data" / maps / path.name)
    done = recordmill(*flags(folder, depth_folder=depth_folder))
    assert (done.code, "without an image" in done.out) == (0, False), done
    assert {name: int(depth(record)[0, 0]) for name, record in examples_by_name(folder / "out").items()} == {
        f"images/train/{name}.png": ord(name) for name in ("a", "b", "c")
    }


def test_two_files_for_one_map_are_an_error(folder, recordmill):
    write(folder / "data" / "depth" / "train" / "a.png", DEPTH)
    error = recordmill(*flags(folder)).err
    assert [name for name in ("a.png", "a_depth.png") if name not in error] == []


def test_further_split_needs_the_same_scale(folder, recordmill):
    assert recordmill(*flags(folder)).code == 0
    (folder / "data" / "data.yaml").write_text("val: images/train\nnames: [cat]\n")
    other = recordmill(*flags(folder, "--depth-scale", 0.001))
    assert "--depth-scale 0.002" in other.err
    assert [*manifest_of(folder / "out")["splits"]] == ["train"]


def test_samples_do_not_lose_depth_maps_silently(folder):
    read = ReadDataset(folder / "data", depth_images=folder / "data" / "depth", depth_scale=0.002)
    with pytest.raises(ConfigError, match="Samples do not have the depth maps of"):
        Pipeline() | read
