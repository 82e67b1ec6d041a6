import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask, StoredImage
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.images.image_sources import Use, decode_source, inspect_image_file
from recordmill.transforms.storage.local_storage import LocalStorage

SIDES = 900, 700


def encode(format_: str, exif: bool = False) -> bytes:
    """Return an image of more than half a megabyte."""
    noise = np.random.default_rng(0).integers(0, 256, (SIDES[1], SIDES[0], 3), np.uint8)
    data, orientation = io.BytesIO(), Image.Exif()
    orientation[0x0112] = 6
    Image.fromarray(noise).save(data, format_, quality=95, **({"exif": orientation} if exif else {}))
    return data.getvalue()


@pytest.fixture
def inspect(tmp_path):
    def run(data: bytes, sides=SIDES, check: str = "header", **file: object) -> StoredImage | Rejected:
        path = tmp_path / "image"
        path.write_bytes(data)
        version = str(path.stat().st_mtime_ns)
        ref = ImageFile(**({"path": str(path), "size_bytes": len(data), "version": version} | file))
        return inspect_image_file(ImageTask(1, "image", *sides, ref, "train", ()), ImageRules(check, upright=True))

    return run


@pytest.mark.parametrize(
    ("data", "sides", "use", "size"),
    [
        (encode("JPEG"), SIDES, Use.LINK, SIDES),
        (encode("JPEG"), (None, None), Use.LINK, SIDES),
        (encode("PNG"), SIDES, Use.LINK, SIDES),
        (encode("BMP"), SIDES, Use.LINK, SIDES),
        (encode("JPEG", exif=True), SIDES, Use.WITHOUT_EXIF, SIDES),
        (encode("PNG", exif=True), SIDES, Use.WITHOUT_EXIF, SIDES),
        (encode("JPEG", exif=True), SIDES[::-1], Use.COPY, SIDES[::-1]),
        (encode("JPEG", exif=True), (None, None), Use.COPY, SIDES[::-1]),
        (encode("GIF"), SIDES, Use.COPY, SIDES),
    ],
)
@pytest.mark.parametrize("check", ["none", "header", "decode"])
def test_use_of_file(check, data, sides, use, size, inspect):
    stored = inspect(data, sides, check)
    assert isinstance(stored, StoredImage), stored
    source = decode_source(stored.data)
    assert (source.use, (stored.width, stored.height)) == (use, size)
    assert bool(source.file.data) == (use is Use.COPY)


@pytest.mark.parametrize(
    ("data", "sides", "reason"),
    [
        (encode("JPEG")[:-200_000], SIDES, Reason.IMAGE_UNREADABLE),
        (encode("PNG")[:-200_000], SIDES, Reason.IMAGE_UNREADABLE),
        (encode("JPEG"), (900, 701), Reason.SIZE_MISMATCH),
        (b"hello" * 200_000, SIDES, Reason.UNSUPPORTED_FORMAT),
        (b"", SIDES, Reason.IMAGE_UNREADABLE),
    ],
)
@pytest.mark.parametrize("check", ["header", "decode"])
def test_unusable_file(check, data, sides, reason, inspect):
    rejected = inspect(data, sides, check)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


@pytest.mark.parametrize("check", ["header", "decode"])
def test_bytes_that_are_read(check, inspect, monkeypatch):
    read = []
    for name in ("read", "read_range"):
        original = getattr(LocalStorage, name)
        monkeypatch.setattr(
            LocalStorage, name, lambda *arguments, own=original: read.append(data := own(*arguments)) or data
        )
    data = encode("JPEG")
    assert isinstance(inspect(data), StoredImage) if check == "header" else inspect(data, check="decode")
    is_part = sum(map(len, read)) < len(data)
    assert is_part == (check == "header")


def test_replaced_file_is_missing(inspect):
    rejected = inspect(encode("JPEG"), version="1")
    assert rejected.reason is Reason.IMAGE_MISSING


def test_image_in_a_file_of_many_is_in_the_record(inspect):
    image = encode("JPEG")
    stored = inspect(b"start" + image + b"end", offset=5, size_bytes=len(image))
    source = decode_source(stored.data)
    assert (source.use, hashlib.sha256(source.file.data).digest()) == (Use.COPY, hashlib.sha256(image).digest())


def test_file_is_linked_beside_or_over_another(tmp_path):
    storage, source, link = LocalStorage(), tmp_path / "a", tmp_path / "new" / "b"
    source.write_bytes(b"image")
    for _ in range(2):  # os.replace() does nothing for two names of a file
        assert storage.link_file(str(link), str(source))
    (tmp_path / "other").write_bytes(b"other")
    assert storage.link_file(str(tmp_path / "other"), str(source))
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {
        "a": b"image",
        "b": b"image",
        "other": b"image",
    }
    assert not storage.link_file(str(tmp_path / "c"), "/proc/self/status")  # another file system
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["a", "new", "other"]
