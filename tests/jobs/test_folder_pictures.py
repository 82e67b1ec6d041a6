"""`recordmill folder`: what becomes of pictures, which are left out, and that the bytes are the same every time."""

import zipfile

import tensorflow as tf
from PIL import Image

from tests.conftest import rejects_of, shard_bytes
from tests.jobs.folders import SPLITS, THREE, counts, draw, draw_all, examples_of, image_files, three_splits


def test_bad_files_are_rejected_and_counted_and_a_webp_is_encoded_anew(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/good.jpg", "a/good.png", "b/web.webp", "b/named wrong.png"])
    whole = {name: (images / "a" / name).read_bytes() for name in ("good.jpg", "good.png")}
    (images / "b" / "named wrong.png").write_bytes(whole["good.jpg"])
    (images / "a" / "half.jpg").write_bytes(whole["good.jpg"][: len(whole["good.jpg"]) // 2])
    (images / "a" / "half.png").write_bytes(whole["good.png"][: len(whole["good.png"]) // 2])
    (images / "a" / "empty.jpg").write_bytes(b"")
    (images / "a" / "page.jpg").write_text("<html>not found</html>")
    Image.new("RGB", (40, 30)).save(images / "a" / "icon.png", "ICO")
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
    assert (images_read["rows"], images_read["written"]) == (11, 4)
    assert images_read["rewritten"]["by_format"] == {"webp": 1}
    examples = examples_of(tmp_path / "out")
    assert examples["b/named wrong.png"]["image/format"] == [b"jpeg"]
    assert examples["b/named wrong.png"]["image/encoded"] == [whole["good.jpg"]]
    web = examples["b/web.webp"]
    said = [web[f"image/{side}"][0] for side in ("height", "width", "channels")]
    assert tf.io.decode_image(web["image/encoded"][0]).shape == said == [58, 22, 3]
    assert web["image/format"][0] in (b"jpeg", b"png")
    assert recordmill("verify", tmp_path / "out").code == 0


def test_too_many_rejects_fail_and_accepting_them_goes_on(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/2.jpg", "3.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 1
    assert "1 of 3 images (33.3%) are rejected" in outcome.err
    assert "'3.jpg' is in no folder" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    outcome = recordmill("folder", *flags, "--max-rejects", 0.5)
    assert outcome.code == 0
    assert "Going on with an unfinished run" in outcome.out


def test_a_job_that_cannot_succeed_any_more_stops_and_reads_no_more_pictures(tmp_path, recordmill):
    images = tmp_path / "images" / "a"
    images.mkdir(parents=True)
    for number in range(400):
        (images / f"{number}.jpg").write_bytes(b"")
    flags = ["--images", images.parent, "--classes", "a", "--output", tmp_path / "out", "--examples-per-shard", 20]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 1
    assert "of 400 images" in outcome.err
    assert 100 <= len(rejects_of(tmp_path / "out")) < 200


def test_all_as_jpegs(pictures, tmp_path, recordmill):
    flags = ["--images", pictures, "--output", tmp_path, *THREE, "--format", "jpeg"]
    assert recordmill("folder", *flags).code == 0
    files = image_files(pictures)
    pngs = {name for name in files if name.lower().endswith(".png")}
    examples = examples_of(tmp_path)
    assert set(examples) == set(files)
    for name, example in examples.items():
        assert example["image/format"] == [b"jpeg"]
        said = [example[f"image/{side}"][0] for side in ("height", "width", "channels")]
        assert list(tf.io.decode_jpeg(example["image/encoded"][0], channels=0).shape) == said
        assert (example["image/encoded"] == [files[name].read_bytes()]) == (name not in pngs)
    for split in SPLITS:
        mine = [name for name in pngs if examples[name]["split"] == split]
        assert counts(tmp_path, split)["rewritten"] == {
            "by_format": {"png": len(mine)},
            "turned": 0,
            "shrunk": 0,
            "bytes_read": sum(files[name].stat().st_size for name in mine),
            "bytes_written": sum(len(examples[name]["image/encoded"][0]) for name in mine),
        }
    assert recordmill("verify", tmp_path).code == 0


def test_a_cmyk_jpeg_is_whole_when_read_back(tmp_path, recordmill):
    draw_all(tmp_path / "images", ["b/1.jpg"])
    (tmp_path / "images" / "a").mkdir()
    Image.new("CMYK", (20, 20), (1, 2, 3, 4)).save(tmp_path / "images" / "a" / "x.jpg")
    assert recordmill("folder", "--images", tmp_path / "images", "--output", tmp_path / "out").code == 0
    outcome = recordmill("verify", tmp_path / "out")
    assert outcome.code == 0, outcome
    for example in examples_of(tmp_path / "out").values():
        assert example["image/channels"] == [tf.io.decode_image(example["image/encoded"][0], channels=0).shape[2]]


# The same bytes every time


def test_the_same_bytes_from_one_thread(pictures, converted, tmp_path, recordmill):
    assert recordmill("folder", *three_splits(pictures, tmp_path), "--workers", 1).code == 0
    assert shard_bytes(tmp_path) == shard_bytes(converted)


def test_the_same_bytes_from_a_zip(pictures, converted, tmp_path, recordmill):
    archive = tmp_path / "pictures.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(pictures.rglob("*")):
            file.write(path, path.relative_to(pictures).as_posix())
    assert recordmill("folder", *three_splits(archive, tmp_path / "out")).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_both_writers_write_the_same_records(pictures, converted, tmp_path, recordmill):
    outcome = recordmill("folder", *three_splits(pictures, tmp_path), "--writer", "beam")
    assert outcome.code == 0, outcome
    assert examples_of(tmp_path) == examples_of(converted)
    assert len(shard_bytes(tmp_path)) == 6
    for split in SPLITS:
        assert counts(tmp_path, split) == counts(converted, split)
    assert recordmill("verify", tmp_path).code == 0
