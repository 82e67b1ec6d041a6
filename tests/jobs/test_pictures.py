"""Pictures as they come: whatever is written decodes to the size that its record says; what is not is told."""

import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from recordmill.schemas.images import ImageRef, ImageTask, PictureRules
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.images.load_images import load_image
from tests.conftest import (
    CATEGORIES,
    SHARED_DATA,
    SKELETON,
    annotation,
    convert,
    draw_jpeg,
    grey,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    shard_bytes,
    write_coco,
)

CAT = [{"id": 1, "name": "cat", **SKELETON}]


def drawn(width: int = 60, height: int = 40) -> Image.Image:
    image = Image.new("RGB", (width, height), (200, 60, 50))
    ImageDraw.Draw(image).ellipse((10, 5, 50, 35), fill=(40, 90, 220))
    return image


def encoded(image: Image.Image, format_: str, **how) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **how)
    return stream.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


PICTURE = drawn()
DEEP = Image.fromarray((np.arange(2400).reshape(40, 60) * 20).astype(np.uint16))
# What it is, and the format it is written in.
ODD = {
    "webp": (encoded(PICTURE, "WEBP"), "jpeg"),
    "webp with films": (encoded(PICTURE, "WEBP", save_all=True, append_images=[PICTURE.rotate(9)]), "jpeg"),
    "gif": (encoded(PICTURE, "GIF"), "jpeg"),
    "bmp": (encoded(PICTURE, "BMP"), "jpeg"),
    "bmp of one bit": (encoded(PICTURE.convert("1"), "BMP"), "jpeg"),
    "tiff": (encoded(PICTURE, "TIFF"), "jpeg"),
    "tiff of 16 bits": (encoded(DEEP, "TIFF"), "png"),
    "ppm": (encoded(PICTURE, "PPM"), "jpeg"),
    "jpeg 2000": (encoded(PICTURE, "JPEG2000"), "jpeg"),
}
AS_THEY_ARE = {
    "jpeg": (encoded(PICTURE, "JPEG"), "jpeg"),
    "mpo": (encoded(PICTURE, "MPO", save_all=True, append_images=[PICTURE]), "jpeg"),
    "cmyk jpeg": (encoded(PICTURE.convert("CMYK"), "JPEG"), "jpeg"),
    "png called jpg": (encoded(PICTURE, "PNG"), "png"),
    "png of 16 bits": (encoded(DEEP, "PNG"), "png"),
    "moving png": (encoded(PICTURE, "PNG", save_all=True, append_images=[PICTURE.rotate(9)]), "png"),
    "lying jpeg": (encoded(PICTURE, "JPEG", exif=exif(6)), "jpeg"),
}


class Album:
    """A folder of pictures, each with one annotation whose id is the image's."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "out"
        (folder / "images").mkdir()
        self.images: list[dict] = []
        self.annotations: list[dict] = []

    def add(self, name: str, data: bytes, width: int = 60, height: int = 40, **more) -> None:
        id_ = len(self.images) + 1
        (self.folder / "images" / name).write_bytes(data)
        self.images.append(image_row(id_, name, width, height))
        self.annotations.append(annotation(id_, id_, (6, 4, 30, 20)) | more)

    def convert(self, recordmill, *flags: object) -> dict[str, dict[str, list]]:
        """The records, by file name."""
        document = {"images": self.images, "annotations": self.annotations, "categories": CAT}
        path = self.folder / "instances.json"
        path.write_text(json.dumps(document))
        images = ["--images", self.folder / "images"] if "--images" not in flags else []
        kind = "--keypoints" if any("keypoints" in row for row in self.annotations) else "--instances"
        arguments = [*images, kind, path, "--output", self.out, "--max-rejects", 1, *flags]
        outcome = recordmill("coco", *arguments)
        assert outcome.code == 0, outcome
        assert recordmill("verify", self.out).code == 0
        return {example["image/filename"][0].decode(): example for example in read_examples(self.out)}


@pytest.fixture
def album(tmp_path) -> Album:
    return Album(tmp_path)


def decoded(example: dict[str, list]) -> np.ndarray:
    """As training decodes it; of the size that the record says."""
    image = tf.io.decode_image(example["image/encoded"][0], channels=3, expand_animations=False)
    assert image.shape == (example["image/height"][0], example["image/width"][0], 3)
    return image.numpy().astype(int)


def test_odd_formats_are_written_as_jpeg_or_png_and_counted(album, recordmill):
    for name, (data, _) in (ODD | AS_THEY_ARE).items():
        album.add(f"{name}.jpg", data)
    album.add("floats.tif", encoded(Image.fromarray(np.ones((40, 60), np.float32)), "TIFF"))
    album.add("icon.ico", encoded(PICTURE, "ICO"))
    examples = album.convert(recordmill)
    for name, (data, format_) in (ODD | AS_THEY_ARE).items():
        example = examples[f"{name}.jpg"]
        assert example["image/format"] == [format_.encode()], name
        assert (example["image/encoded"] == [data]) == (name in AS_THEY_ARE), name
        assert Image.open(io.BytesIO(example["image/encoded"][0])).format in (format_.upper(), "MPO")
        same = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
        if "16" not in name:
            assert np.abs(decoded(example) - same).mean() < 6, name
    rejects = {reject["id"]: reject["reason"] for reject in rejects_of(album.out)}
    assert rejects == dict.fromkeys((len(ODD) + len(AS_THEY_ARE) + 1, len(album.images)), "unsupported_format")
    rewritten = manifest_of(album.out)["splits"]["train"]["images"]["rewritten"]
    assert rewritten["by_format"] == {"bmp": 2, "gif": 1, "tiff": 2, "webp": 2, "other": 2}
    assert (rewritten["turned"], rewritten["shrunk"]) == (0, 0)
    assert rewritten["bytes_read"] == sum(len(data) for data, _ in ODD.values())


# Turned and shrunk: what is annotated stays where it is in the picture

LYING = np.zeros((40, 60, 3), np.uint8)
LYING[8:28, 12:42] = (250, 20, 30)  # the object, as the pixels are stored


def test_a_picture_whose_json_has_the_size_of_the_stored_pixels_passes_through(album, recordmill):
    data = encoded(Image.fromarray(LYING), "JPEG", quality=100, subsampling=0, exif=exif(6))
    album.add("a.jpg", data, 60, 40, bbox=[12, 8, 30, 20], segmentation=[[12, 8, 42, 8, 42, 28, 12, 28]])
    (example,) = album.convert(recordmill, "--masks", "png").values()
    assert example["image/encoded"] == [data]
    assert decoded(example)[grey(example["image/object/mask"][0]) == 1].mean(0) == pytest.approx([250, 20, 30], abs=5)


@pytest.mark.parametrize("orientation", [6, 7])
def test_a_picture_whose_json_has_the_size_upright_is_turned(album, recordmill, orientation):
    """The annotations are of what a viewer shows: drawn upright, and stored lying as a camera does."""
    upright = np.zeros((60, 40, 3), np.uint8)
    upright[12:42, 8:28] = (250, 20, 30)
    upright[15:23, 10:18] = (20, 250, 30)
    lying = np.rot90(upright, 1) if orientation == 6 else upright[::-1, ::-1].transpose(1, 0, 2)
    stored = Image.fromarray(np.ascontiguousarray(lying))
    data = encoded(stored, "JPEG", quality=100, subsampling=0, exif=exif(orientation))
    box = {"bbox": [8, 12, 20, 30], "segmentation": [[8, 12, 28, 12, 28, 42, 8, 42]], "keypoints": [14, 19, 2, 0, 0, 0]}
    album.add("a.jpg", data, 40, 60, **box)
    (example,) = album.convert(recordmill, "--masks", "both").values()
    pixels = decoded(example)
    assert pixels.shape == (60, 40, 3)
    mask = grey(example["image/object/mask"][0]) == 1
    assert pixels[mask].mean(0) == pytest.approx([225, 45, 30], abs=8)
    assert pixels[~mask].mean() < 5
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == pytest.approx([8 / 40, 12 / 60, 28 / 40, 42 / 60])
    x, y = (example[f"image/object/keypoint/{axis}"][0] for axis in "xy")
    assert pixels[round(y * 60), round(x * 40)].tolist() == pytest.approx([20, 250, 30], abs=60)
    rewritten = manifest_of(album.out)["splits"]["train"]["images"]["rewritten"]
    assert (rewritten["by_format"], rewritten["turned"]) == ({"jpeg": 1}, 1)


@pytest.mark.parametrize(("size", "orientation"), [((40, 60), 3), ((61, 40), 6)])
def test_a_size_that_is_neither_is_a_mismatch(album, recordmill, size, orientation):
    album.add("a.jpg", encoded(PICTURE, "JPEG", exif=exif(orientation)), *size)
    album.add("b.jpg", encoded(PICTURE, "JPEG"))
    assert list(album.convert(recordmill)) == ["b.jpg"]
    assert [reject["reason"] for reject in rejects_of(album.out)] == ["size_mismatch"]


def test_shrunk_pictures_keep_their_annotations_in_place(album, recordmill):
    image = np.zeros((40, 60, 3), np.uint8)
    image[8:28, 12:42] = (250, 20, 30)
    box = {"bbox": [12, 8, 30, 20], "segmentation": [[12, 8, 42, 8, 42, 28, 12, 28]], "keypoints": [14, 10, 2, 0, 0, 0]}
    album.add("a.png", encoded(Image.fromarray(image), "PNG"), **box)
    album.add("small.png", encoded(drawn(30, 20), "PNG"), 30, 20)
    examples = album.convert(recordmill, "--max-side", 30, "--masks", "both")
    example = examples["a.png"]
    pixels = decoded(example)
    assert pixels.shape == (20, 30, 3)
    mask = grey(example["image/object/mask"][0])
    expected = np.zeros((20, 30), np.uint8)
    expected[4:14, 6:21] = 1
    assert np.array_equal(mask, expected)
    assert pixels[6:12, 8:19].mean((0, 1)) == pytest.approx([250, 20, 30], abs=3)
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == pytest.approx([12 / 60, 8 / 40, 42 / 60, 28 / 40])
    assert example["image/object/keypoint/x"][0] == pytest.approx(14 / 60)
    assert decoded(examples["small.png"]).shape == (20, 30, 3)
    assert manifest_of(album.out)["splits"]["train"]["images"]["rewritten"]["shrunk"] == 1


def test_boxes_in_pixels_are_of_the_shrunk_picture(album, recordmill):
    album.add("a.png", encoded(PICTURE, "PNG"), bbox=[12, 8, 30, 20])
    path = album.folder / "instances.json"
    path.write_text(json.dumps({"images": album.images, "annotations": album.annotations, "categories": CAT}))
    flags = ["--images", album.folder / "images", "--instances", path, "--output", album.out]
    assert recordmill("coco", *flags, "--layout", "keras", "--max-side", 30).code == 0
    assert recordmill("verify", album.out).code == 0
    (record,) = tf.data.TFRecordDataset(str(album.out / "file_00-1.tfrec")).as_numpy_iterator()
    assert tf.train.Example.FromString(record).features.feature["bbox"].float_list.value == [6, 4, 15, 10]


# Images in a .zip


def test_a_zip_is_read_in_place_and_gives_the_same_shards(sample, tmp_path, recordmill):
    archive = tmp_path / "train2017.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(Path(sample.images).rglob("*.*")):
            file.write(path, f"train2017/{path.relative_to(sample.images)}")
    flags = ["--instances", sample.instances, "--max-rejects", 0.2, "--num-shards", 2]
    assert recordmill("coco", "--images", sample.images, *flags, "--output", tmp_path / "folder").code == 0
    before = sorted(os.listdir(tmp_path))
    assert recordmill("coco", "--images", archive, *flags, "--output", tmp_path / "zip").code == 0
    assert shard_bytes(tmp_path / "zip") == shard_bytes(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == [*before, "zip"]


def test_damaged_and_encrypted_members_are_rejects(album, recordmill, tmp_path):
    names = ["good.png", "flipped.png", "locked.png", "lies.png"]
    for name in names:
        album.add(name, encoded(drawn(), "PNG"))
    archive = tmp_path / "images.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.write(album.folder / "images" / name, name)
        places = {info.filename: info.header_offset for info in file.infolist()}
    data = bytearray(archive.read_bytes())
    data[places["flipped.png"] + 60] ^= 0xFF
    central = {name: data.rindex(name.encode()) - 46 for name in names}
    data[central["locked.png"] + 8] |= 1  # the flag of encryption
    struct.pack_into("<I", data, central["lies.png"] + 24, 1 << 31)  # size, uncompressed
    archive.write_bytes(data)
    assert list(album.convert(recordmill, "--images", archive)) == ["good.png"]
    reasons = {reject["id"]: reject["reason"] for reject in rejects_of(album.out)}
    assert reasons == {2: "image_inaccessible", 3: "image_inaccessible", 4: "too_large"}


# The promise


def small(format_: str) -> bytes:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8))
    return encoded(noise.convert("P") if format_ == "GIF" else noise, format_)


SEEDS = {name: small(name) for name in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")} | {
    "progressive": encoded(drawn(32, 24), "JPEG", progressive=True),
    "palette": encoded(drawn(32, 24).quantize(8), "PNG"),
}


@st.composite
def mutated(draw) -> bytes:
    """A good file that somebody has flipped, cut, joined or lied in."""
    data = bytearray(draw(st.sampled_from(list(SEEDS.values()))))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "drop", "join", "repeat", "marker"])):
            case "flip":
                data[place : place + 1] = bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in data[place : place + 1])
            case "set":
                data[place : place + 2] = draw(st.binary(min_size=2, max_size=2))
            case "cut":
                del data[place:]
            case "drop":
                del data[place : place + draw(st.integers(1, 40))]
            case "join":
                data[place:] = draw(st.sampled_from(list(SEEDS.values())))[place:]
            case "repeat":
                data[place:place] = data[place : place + draw(st.integers(1, 60))]
            case "marker":
                data[place : place + 2] = bytes((0xFF, draw(st.integers(0, 255))))
    return bytes(data)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(), st.sampled_from(["keep", "jpeg", "png"]), st.sampled_from([None, 20]))
def test_whatever_is_written_decodes_to_the_size_it_says(tmp_path, data, format_, max_side):
    path = tmp_path / "picture"
    path.write_bytes(data)
    task = ImageTask(1, "a", None, None, ImageRef(str(path), len(data)), "train", ())
    loaded = load_image(task, PictureRules("decode", format_, max_side))
    if not isinstance(loaded, Rejected):
        image = tf.io.decode_image(loaded.data, channels=3, expand_animations=False)
        assert image.shape == (loaded.height, loaded.width, 3)
        assert max_side is None or max(loaded.width, loaded.height) <= max_side


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes and a great many pixels."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes((1 + (width + 7) // 8) * height), 9)),
        (b"IEND", b""),
    ]
    framed = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_a_decompression_bomb_is_not_decoded(tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(bomb(30_000, 30_000))
    task = ImageTask(1, "a", None, None, ImageRef(str(path), path.stat().st_size), "train", ())
    for check in ("none", "header", "decode"):
        loaded = load_image(task, PictureRules(check))
        assert (loaded.reason.value, loaded.detail) == (
            "too_large",
            "'a': 30000x30000 pixels; at most 178,000,000 are decoded",
        )


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
def test_pngsuite(tmp_path):
    """175 files, those that begin with x broken on purpose: exactly these are rejected, and so would TensorFlow."""
    rejected = set()
    paths = sorted((SHARED_DATA / "pngsuite" / "png").glob("*.png"))
    for path in paths:
        task = ImageTask(1, path.name, None, None, ImageRef(str(path), path.stat().st_size), "train", ())
        loaded = load_image(task, PictureRules("decode"))
        if isinstance(loaded, Rejected):
            rejected.add(path.name)
            with pytest.raises(tf.errors.InvalidArgumentError):
                tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False)
        else:
            image = tf.io.decode_image(loaded.data, channels=3, expand_animations=False)
            assert image.shape == (loaded.height, loaded.width, 3)
            assert loaded.data == path.read_bytes()
    assert rejected == {path.name for path in paths if path.name.startswith("x")}
    assert (len(paths), len(rejected)) == (175, 14)


@pytest.mark.parametrize("check", ["none", "header", "decode"])
@pytest.mark.parametrize("masks", ["png", "both"])
def test_sizes_that_no_picture_has_are_rejects_and_no_work(check, masks, tmp_path, recordmill):
    """Masks of 10 ** 12 pixels were made by --check none; 10 ** 36 were an OverflowError."""
    draw_jpeg(tmp_path / "images" / "a.jpg")
    rows = [image_row(1, "a.jpg"), image_row(2, "a.jpg", 10**6, 10**6), image_row(3, "a.jpg", 10**18, 10**18)]
    objects = [annotation(number, number) for number in (1, 2, 3)]
    instances = write_coco(tmp_path, rows, objects, CATEGORIES)
    flags = ["--check", check, "--masks", masks, "--max-rejects", "1"]
    outcome = convert(recordmill, tmp_path, instances, *flags)
    assert outcome.code == 0, outcome
    assert [(row["id"], row["reason"]) for row in rejects_of(tmp_path / "out")] == [(2, "too_large"), (3, "too_large")]
    assert len(read_examples(tmp_path / "out")) == 1
