"""`recordmill folder`: what becomes of pictures, which are left out, and that the bytes are the same every time."""

import zipfile

import tensorflow as tf
from PIL import Image

from tests.conftest import rejects_of, shard_bytes
from tests.jobs.folders import counts, draw, draw_all, examples_of, three_splits


def test_bad_files_are_rejected_and_counted_and_a_webp_is_encoded_anew(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/good.jpg", "a/good.png", "b/web.webp", "b/named wrong.png"])
    whole = {name: (images / "a" / name).read_bytes() for name in ("good.jpg", "good.png")}
    (images / "b" / "named wrong.png").write_bytes(whole["good.jpg"])
    (images / "a" / "half.jpg").write_bytes(whole["good.jpg"][: len(whole["good.jpg"]) // 2])
    (images / "a" / "half.png").write_bytes(whole["good.png"][: len(whole["good.png"]) // 2])
    (images / "a" / "empty.jpg").write_bytes(b"")
    (images / "a" / "page.jpg").write_text("<html>not found</html>")
    Image.new("RGB", (40, 30)).save(images / "a" / "icon.png", "ICO")
    Image.new("CMYK", (20, 20), (1, 2, 3, 4)).save(images / "a" / "cmyk.jpg")
    draw(images / "no class.jpg", 7)
    draw(images / "b" / "bell\a.jpg", 8)
    flags = ["--images", images, "--output", tmp_path / "out", "--max-rejects", 1]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    reasons = {(row["detail"].split("'")[1], row["reason"]) for row in rejects_of(tmp_path / "out")}
    assert reasons == {
        ("a/half.jpg", "image_unreadable"),
        ("a/half.png", "image_unreadable"),
        ("a/empty.jpg", "image_unreadable"),
        ("a/page.jpg", "unsupported_format"),
        ("a/icon.png", "unsupported_format"),
        ("no class.jpg", "no_class"),
        ("b/bell\\x07.jpg", "unsafe_file_name"),
    }
    images_read = counts(tmp_path / "out")
    assert images_read["rejected"] == {
        "image_unreadable": 3,
        "no_class": 1,
        "unsafe_file_name": 1,
        "unsupported_format": 2,
    }
    assert (images_read["rows"], images_read["written"]) == (12, 5)
    assert images_read["rewritten"]["by_format"] == {"webp": 1}
    examples = examples_of(tmp_path / "out")
    assert examples["b/named wrong.png"]["image/format"] == [b"jpeg"]
    assert examples["b/named wrong.png"]["image/encoded"] == [whole["good.jpg"]]
    assert examples["b/web.webp"]["image/format"][0] in (b"jpeg", b"png")
    for example in examples.values():
        said = [example[f"image/{side}"][0] for side in ("height", "width", "channels")]
        assert tf.io.decode_image(example["image/encoded"][0]).shape == said
    assert recordmill("verify", tmp_path / "out").code == 0


def test_a_job_that_cannot_succeed_any_more_stops_and_reads_no_more_pictures(tmp_path, recordmill):
    images = tmp_path / "images" / "a"
    images.mkdir(parents=True)
    for number in range(400):
        (images / f"{number}.jpg").write_bytes(b"")
    flags = ["--images", images.parent, "--classes", "a", "--output", tmp_path / "out", "--examples-per-shard", 20]
    assert recordmill("folder", *flags).code == 1
    assert 100 <= len(rejects_of(tmp_path / "out")) < 200


# The same bytes every time


def test_the_same_bytes_from_a_zip_and_one_thread(pictures, converted, tmp_path, recordmill):
    archive = tmp_path / "pictures.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(pictures.rglob("*")):
            file.write(path, path.relative_to(pictures).as_posix())
    assert recordmill("folder", *three_splits(archive, tmp_path / "out"), "--workers", 1).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)
