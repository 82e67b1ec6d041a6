import os
import pickle
import signal
import threading
import time

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill._decode_record import RecordDecoder
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.images.decode_jpeg import decode_jpeg
from recordmill.transforms.images.load_images import decode_rgb
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.tfrecord import frame
from tests.recordmill.splits import CONTENTS, draw, encoded, split_of, write_split

RECORDS = 7
CLASSES = CONTENTS["classification"]


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def split(request, tmp_path):
    return whole(tmp_path, compressed=request.param)


def whole(folder, **more):
    return write_split(folder, CLASSES, [draw(CLASSES, number) for number in range(RECORDS)], **more)


def ids(records) -> list[int]:
    return [int(record["image_id"]) for record in records]


def test_records_in_order(split):
    assert len(split) == RECORDS
    assert ids(split) == ids(split.numpy()) == list(range(RECORDS))
    assert list(split.features) == list(next(iter(split)))
    assert split.features["image"].shape == ("height", "width", "3")


@pytest.mark.parametrize("number", [0, 2, RECORDS - 1, -1, -RECORDS, np.int64(3)])
def test_a_record_by_its_number(tmp_path, number):
    split = whole(tmp_path)
    place = range(RECORDS)[number]
    assert ids([split[number]]) == [place]
    assert split.raw(number) == ExampleWriter(CLASSES.table).write(draw(CLASSES, place).values)
    if place:
        assert ids([split[1:][place - 1], split[1:][place - RECORDS]]) == [place, place]


def test_records_in_any_order_at_once(tmp_path):
    split = whole(tmp_path)
    numbers = [5, 0, -1, 2, 0]
    assert split.read(numbers) == [split.raw(number) for number in numbers]
    assert split[2:6].read([3, 0]) == [split.raw(5), split.raw(2)]


@pytest.mark.parametrize("name", ["detection", "keras", "tfds", "float16", "rows", "pictures"])
def test_only_keys_are_decoded(tmp_path, name):
    contents = CONTENTS[name]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    before = split[2]  # decoded before keys are given, which another split must not inherit
    for key in split.features:
        (*_, record) = split.numpy(keys=[key])
        assert list(record) == [key]
        np.testing.assert_array_equal(record[key], before[key])
    assert list(split.grain(keys=list(before)[:2])[1]) == list(before)[:2]
    for keys in (np.array(list(before)[:2]), iter(list(before)[:2])):
        assert list(next(split.numpy(keys=keys))) == list(before)[:2]
    with pytest.raises(TypeError):
        split.grain()[0:2]
    assert list(split[2]) == list(before)


@pytest.mark.parametrize("keys", ["image", [], ["image", "imagr"], 5, [["image"]]])
def test_a_key_that_is_not_there(tmp_path, keys):
    with pytest.raises(ConfigError, match="Give a list of image, "):
        whole(tmp_path).numpy(keys=keys)


@pytest.mark.parametrize("number", [RECORDS, -RECORDS - 1, 10**9])
def test_a_number_beyond_the_records(tmp_path, number):
    split = whole(tmp_path)
    with pytest.raises(IndexError, match=f"record {number:,} does not exist; split train has 7"):
        split[number]
    with pytest.raises(IndexError, match="record 2 does not exist; split train has 2"):
        split[3:5].raw(2)


def test_compressed_shards_have_no_records_by_number(tmp_path):
    split = whole(tmp_path, compressed=True)
    for read in (lambda: split[0], split.grain):
        with pytest.raises(ConfigError, match="the shards are compressed by GZIP"):
            read()


@pytest.mark.parametrize(
    "part", [slice(1, 6), slice(None, -3), slice(2, 3), slice(-4, None), slice(5, 2), slice(0, 99)]
)
def test_slices_are_splits(split, part):
    sliced = split[part]
    assert ids(sliced) == list(range(RECORDS))[part]
    assert len(sliced) == len(range(RECORDS)[part])
    assert ids(sliced[1:]) == list(range(RECORDS))[part][1:]
    assert len(split) == RECORDS


def test_a_slice_with_a_step(split):
    with pytest.raises(ConfigError, match=r"step 1 \(got 2\)"):
        split[::2]


@pytest.mark.parametrize("hosts", [1, 2, 3, 9])
def test_hosts_read_each_record_once_and_as_many_as_others(split, hosts):
    parts = [split._pieces(host, hosts) for host in range(hosts)]
    numbers = [sum(piece.end - piece.first for piece in pieces) for pieces in parts]
    assert max(numbers) - min(numbers) <= 1
    places = [(piece.number, place) for pieces in parts for piece in pieces for place in range(piece.first, piece.end)]
    assert places == [*((0, place) for place in range(2)), *((2, place) for place in range(5))]


def test_record_that_cannot_be_decoded_is_named(tmp_path):
    values = draw(CLASSES, 1).values
    writer = ExampleWriter(CLASSES.table)
    records = [writer.write(record_values) for record_values in (values, values | {"image.encoded": b"none"})]
    split = split_of(tmp_path, CLASSES, [records])
    for read in (
        lambda: list(split),
        lambda: split[1:][0],
        lambda: list(split.numpy(threads=2)),
        lambda: split.grain(threads=2)._getitems([0, 1]),
    ):
        with pytest.raises(RecordError, match=r"00000-of-00001: record 1 cannot be decoded"):
            read()


def test_nothing_to_read(tmp_path):
    split = split_of(tmp_path, CLASSES, [])
    assert len(split) == 0
    assert list(split) == split._pieces() == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_record(tmp_path, threads):
    split = whole(tmp_path)
    path = tmp_path / split.shards[2].file
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    read = split.numpy(threads=threads)
    assert ids(next(read) for _ in range(RECORDS - 1)) == list(range(RECORDS - 1))
    cure = "; recordmill verify lists all damage, and the same command writes the shard again"
    with pytest.raises(RecordError, match=rf"00002-of-00003: record 4 at byte .* checksum.*{cure}$"):
        next(read)
    data[0] ^= 1  # the header of the first record: not the file of another tool
    path.write_bytes(data)
    with pytest.raises(RecordError, match=rf"00002-of-00003: record 0 at byte 0: .*{cure}$"):
        list(type(split)("train", str(tmp_path), split.shards, CLASSES))


THREADS = 3


def decoding_threads() -> int:
    return sum(thread.name.startswith("decode") for thread in threading.enumerate())


def test_threads_decode_in_order(split):
    records = list(split.numpy(threads=THREADS))
    assert all(map(same, records, split))
    assert len(records) == RECORDS
    assert decoding_threads() == 0


def test_no_thread_by_default(split):
    records = iter(split)
    next(records)
    assert decoding_threads() == 0


def test_threads_have_few_records_ahead(tmp_path, monkeypatch):
    split = write_split(tmp_path, CLASSES, [draw(CLASSES, number) for number in range(40)])
    read, starts = type(split)._piece_records, []
    monkeypatch.setattr(
        type(split), "_piece_records", lambda self, piece: (starts.append(1) or record for record in read(self, piece))
    )
    records = split.numpy(threads=2)
    next(records)
    assert len(starts) <= 5
    assert decoding_threads() == 2
    records.close()
    assert decoding_threads() == 0


def test_interrupt_ends_threads(tmp_path, monkeypatch):
    split = whole(tmp_path)
    signals = [signal.SIGINT]

    def decode(decoder, record):
        while signals:
            os.kill(os.getpid(), signals.pop())
        time.sleep(0.02)

    monkeypatch.setattr(RecordDecoder, "__call__", decode)
    with pytest.raises(KeyboardInterrupt):
        list(split.numpy(threads=2))
    until = time.monotonic() + 10
    while decoding_threads() and time.monotonic() < until:
        time.sleep(0.01)  # a thread that was just starting
    assert decoding_threads() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_iteration_with_threads_does_not_continue_after_fork(tmp_path):
    """Nor does it hang; another iteration works."""
    split = whole(tmp_path)
    records = split.numpy(threads=2)
    next(records)
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(list(records)) == RECORDS - 1
        return
    code = 1
    signal.alarm(60)  # a child that hangs is a failure
    try:
        next(records)
    except RuntimeError:
        code = len(list(split.numpy(threads=2)))
    finally:
        os._exit(code)


def test_threads_decode_batches(detected):
    source = detected.grain(threads=2)
    assert all(map(same, source._getitems([4, 0, 4]), [detected[4], detected[0], detected[4]]))
    assert same(pickle.loads(pickle.dumps(source))[3], detected[3])
    assert source._getitems([]) == []


@pytest.mark.parametrize(
    ("reader", "arguments", "fault"),
    [
        ("grain", {"threads": 0}, "split train: threads=0. Give 1 or more"),
        ("numpy", {"draft": True}, r"split train: draft=True needs resize=\(height, width\)"),
        ("numpy", {"resize": (0, 5)}, r"split train: resize=\(0, 5\). Give \(height, width\), 1 or more each"),
        ("numpy", {"resize": (4, 5), "keys": ["boxes"]}, "the records, or keys, have no image, mask or map"),
        ("grain", {"pad": 0}, "split train: pad=0. Give 1 or more"),
        ("grain", {"pad": 5, "raw": True}, "raw=True returns records as they are stored. Leave out the other arg"),
        ("tensorflow", {"draft": True}, r"split.numpy\(resize=\(224, 224\), draft=True\); TensorFlow's graph decodes"),
    ],
)
def test_arguments_that_do_not_go_together(detected, reader, arguments, fault):
    with pytest.raises(ConfigError, match=fault):
        getattr(detected, reader)(**arguments)


def test_pad_that_is_too_small(detected):
    assert detected.grain(pad=1, keys=["labels"])[1]["labels"].shape == (1,)
    source = detected.grain(pad=2, keys=["labels"])
    assert source[2]["labels"].shape == (2,)
    with pytest.raises(
        ConfigError, match=r"00002-of-00003: record 1: pad=2 is too small: labels has 3 values. Give pad=3"
    ):
        source[3]


def test_pad_of_texts_alone(detected):
    texts = detected._with_keys(["captions", "file_name"])
    with pytest.raises(ConfigError, match=r"split train: pad leaves texts out\. Name them in keys"):
        texts.grain(pad=2)
    assert list(texts.grain(pad=2, keys=["captions"])[1]["captions"]) == list(detected[1]["captions"])


def test_draft_decodes_smaller_jpeg(tmp_path):
    """Boxes in pixels are scaled by the stored size, not by that of the draft."""
    contents, number = CONTENTS["keras"], 0
    values = draw(contents, number).values
    pixels = np.asarray(Image.radial_gradient("L").resize((160, 90)).convert("RGB"))
    split = split_of(
        tmp_path, contents, [[ExampleWriter(contents.table).write(values | {"image.encoded": encoded(pixels, "JPEG")})]]
    )
    (draft,), (full,) = (list(split.numpy(resize=(40, 50), draft=draft)) for draft in (True, False))
    reduced = Image.fromarray(decode_jpeg(encoded(pixels, "JPEG"), (40, 50)))
    assert reduced.size == (80, 45)
    np.testing.assert_array_equal(draft["image"], reduced.resize((50, 40), Image.Resampling.BILINEAR))
    assert np.abs(draft["image"].astype(int) - full["image"]).mean() < 3
    assert not np.array_equal(draft["image"], full["image"])
    np.testing.assert_array_equal(draft["box_xywh_px"], full["box_xywh_px"])
    np.testing.assert_allclose(
        full["box_xywh_px"], split[0]["box_xywh_px"] * np.tile([50 / 160, 40 / 90], 2), rtol=1e-6
    )


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("size", [(65_000, 1), (1, 65_000)])
def test_resize_of_extreme_size(tmp_path, size, draft):
    """Also after records were read in their own size."""
    pixels = np.resize(np.arange(256, dtype=np.uint8), (*size, 3))
    record = draw(CLASSES, 0).values | {"image.encoded": encoded(pixels, "JPEG")}
    split = split_of(tmp_path, CLASSES, [[ExampleWriter(CLASSES.table).write(record)] * 2])
    stored = split[0]["image"]
    assert stored.shape == (*size, 3)
    expected = np.asarray(Image.fromarray(stored).resize((7, 1), Image.Resampling.BILINEAR))
    for example in split.numpy(resize=(1, 7), draft=draft, threads=2):
        assert np.abs(example["image"].astype(int) - expected).max() <= 2 * draft


def test_shard_overwritten_is_error(tmp_path):
    records = [bytes([number]) * 100_000 for number in range(3)]
    split = split_of(tmp_path, CLASSES, [records])
    path = tmp_path / split.shards[0].file
    read = split._files.files[0].in_order()
    assert next(read) == records[0]
    before = path.stat().st_mtime_ns
    path.write_bytes(b"".join(part for record in records for part in (frame(record)[0], record, frame(record)[1])))
    os.utime(path, ns=(before + 1, before + 1))
    with pytest.raises(RecordError, match="has changed or was deleted since it was opened"):
        list(read)


def test_shard_with_fewer_records_than_manifest_has(tmp_path):
    split = write_split(tmp_path, CLASSES, [draw(CLASSES, number) for number in range(2)], shards=1)
    info = msgspec.structs.replace(split.shards[0], examples=3)
    longer = type(split)("train", str(tmp_path), [info], CLASSES)
    with pytest.raises(RecordError, match="ends after 2 records, but the manifest has 3"):
        list(longer)


@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_values_stay_when_next_record_is_read(tmp_path, format_):
    """Records are read into the same memory; a record of more than 1 MiB is not."""
    contents, writer = CONTENTS["pictures"], ExampleWriter(CONTENTS["pictures"].table)
    images = [np.random.default_rng(number).integers(0, 256, (90, 160, 3), np.uint8) for number in range(3)]
    notes = [b"a" * 5000, b"b" * (1 << 20), b"c" * 6000]
    records = [
        writer.write(
            draw(contents, number).values | {"image.encoded": encoded(image, format_), "row.note": [notes[number]]}
        )
        for number, image in enumerate(images)
    ]
    split = split_of(tmp_path, contents, [records])
    for examples in (list(split.numpy()), [split[number] for number in range(3)], split.grain()._getitems([0, 1, 2])):
        assert [example["note"].tolist() for example in examples] == [[note] for note in notes]
        for example, image in zip(examples, images, strict=True):
            np.testing.assert_array_equal(example["image"], decode_rgb(encoded(image, format_)))


@pytest.fixture
def detected(tmp_path):
    contents = CONTENTS["detection"]
    return write_split(tmp_path, contents, [draw(contents, number) for number in range(5)])


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_grain_reads_records_one_by_one_and_several(detected):
    split, source = detected, detected.grain()
    assert len(source) == 5
    assert same(source[3], split[3])
    assert all(map(same, source._getitems([4, 0, 4]), [split[4], split[0], split[4]]))
    assert source.__getitems__([]) == []
    assert split.grain(raw=True)._getitems([2, 1]) == [split.raw(2), split.raw(1)]
    assert split.grain(raw=True)[4] == split.raw(4)


def test_source_of_grain_in_another_process_reads_same(detected):
    source = detected.grain()
    first = source[0]
    assert same(pickle.loads(pickle.dumps(source))[0], first)


def test_name_of_grain_source(detected, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    split, drawn = detected, [draw(CONTENTS["detection"], number) for number in range(5)]
    copy = write_split(tmp_path / "elsewhere", CONTENTS["detection"], drawn)
    assert repr(copy.grain()) == repr(split.grain())
    other = write_split(tmp_path / "elsewhere", CONTENTS["detection"], drawn[::-1])
    names = {repr(source) for source in (split.grain(), split.grain(raw=True), split[1:].grain(), other.grain())}
    assert len(names) == 4
