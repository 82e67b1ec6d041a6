import gzip
import io
import tarfile

import pytest

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.tar import (
    END,
    TarMember,
    build_tar_index,
    decode_tar_index,
    encode_tar_index,
    is_gzip_tar,
    is_tar,
    member_header,
    padding,
    parse_header,
)


def write_tar(path, files: dict[str, bytes], format_: int = tarfile.USTAR_FORMAT) -> str:
    with tarfile.open(path, "w", format=format_) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize(("name", "size"), [("000000-00000000.jpg", 0), ("a" * 100, 8**11 - 1), ("é.json", 511)])
def test_header_is_that_of_tarfile(name, size):
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    header = member_header(name, size)
    assert header == info.tobuf(tarfile.USTAR_FORMAT)
    assert parse_header(header) == (name, size)


@pytest.mark.parametrize(("name", "size"), [("a" * 101, 1), ("a", 8**11)])
def test_member_beyond_ustar_is_error(name, size):
    with pytest.raises(ConfigError, match="limits of ustar"):
        member_header(name, size)


@pytest.mark.parametrize("place", [0, 99, 100, 124, 134, 136, 148, 156, 257, 265, 329, 511])
def test_flipped_byte_of_header_is_found(place):
    header = bytearray(member_header("000000-00000000.jpg", 77))
    header[place] ^= 1
    with pytest.raises(ValueError, match="header is damaged"):
        parse_header(bytes(header))


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_index_of_foreign_tar(tmp_path, format_):
    """Members are grouped as wds2idx does: hidden files are left out, and a name may be beyond ustar's limits."""
    long = "n" * (100 if format_ == tarfile.USTAR_FORMAT else 150)
    files = {"a/.hidden": b"", "a/0.jpg": b"x" * 513, "a/0.json": b"{}", f"{long[8:]}.seg.png": b"", "1.cls": b"7"}
    path = write_tar(tmp_path / "x.tar", files, format_)
    index, samples = build_tar_index(path, lambda _: None)
    first, *lines = index.decode().splitlines()
    assert (first, samples) == ("v1.2 3", 3)
    data = (tmp_path / "x.tar").read_bytes()
    members = [line.split()[start : start + 4] for line in lines for start in range(0, len(line.split()), 4)]
    found = {name: (ending, data[int(offset) : int(offset) + int(size)]) for ending, offset, size, name in members}
    assert found == {
        "a/0.jpg": ("jpg", b"x" * 513),
        "a/0.json": ("json", b"{}"),
        f"{long[8:]}.seg.png": ("seg.png", b""),
        "1.cls": ("cls", b"7"),
    }


def test_index_of_consecutive_samples_has_bounds():
    members = [[TarMember("0.jpg", 512, 9), TarMember("0.json", 1536, 512)], [TarMember("1.jpg", 2560, 0)]]
    index = decode_tar_index(encode_tar_index(members))
    assert index.bounds.tolist() == [0, 2048, 2560]
    assert decode_tar_index(b"v1.2 0\n").records == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not an index"),
        (b"v1.1 1\njpg 512 9 0.jpg\n", "not an index"),
        (b"v1.2 2\njpg 512 9 0.jpg\n", "not an index"),
        (b"v1.2 1\njpg 512 9 0.jpg", "not an index"),
        (b"v1.2 1\njpg 512 9\n", "sample 0"),
        (b"v1.2 1\njpg 5x2 9 0.jpg\n", "sample 0"),
        (b"v1.2 1\n\n", "sample 0"),
        (b"v1.2 1\njpg 1024 9 0.jpg\n", "begins at byte 512"),
        (b"v1.2 1\njpg 512 9 0.jpg json 2048 2 0.json\n", "does not follow"),
        (b"v1.2 1\njpg 512 99999999999999999999 0.jpg\n", "beyond the size of any file"),
    ],
)
def test_damaged_index_is_error(data, said):
    with pytest.raises(ValueError, match=said):
        decode_tar_index(data)


@pytest.mark.parametrize(
    ("files", "cut", "error", "said"),
    [
        ({}, None, ConfigError, "no samples"),
        ({"a/.hidden": b""}, None, ConfigError, "no samples"),
        ({"a b.jpg": b""}, None, ConfigError, "has a space"),
        ({"\udce9.jpg": b""}, None, ConfigError, "is not UTF-8"),
        ({"LICENSE": b""}, None, ConfigError, "has no ending"),
        ({"0.jpg": bytes(2000), "1.jpg": bytes(2000)}, 4000, RecordError, "truncated"),
    ],
)
def test_tar_without_index_is_error(tmp_path, files, cut, error, said):
    path = write_tar(tmp_path / "x.tar", files)
    (tmp_path / "x.tar").write_bytes((tmp_path / "x.tar").read_bytes()[:cut])
    with pytest.raises(error, match=said):
        build_tar_index(path, lambda _: None)


def test_is_tar(tmp_path):
    (tmp_path / "x").write_bytes(b"not a tar")
    assert not is_tar(str(tmp_path / "x"))
    assert is_tar(write_tar(tmp_path / "x.tar", {"0.jpg": b""}))
    assert is_tar(write_tar(tmp_path / "empty.tar", {}))
    for name, is_tar_in_gzip in (("x", False), ("x.tar", True), ("empty.tar", False)):
        packed = tmp_path / f"{name}.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert (is_tar(str(packed)), is_gzip_tar(str(packed))) == (False, is_tar_in_gzip)
        assert not is_gzip_tar(str(tmp_path / name))
    assert [padding(size) for size in (0, 1, 512, 513)] == [0, 511, 0, 511]
    assert bytes(1024) == END
