import hashlib
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from recordmill.schemas.errors import IndexMismatchError, RecordError
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers import indexed_file, record_files, tfrecord
from recordmill.transforms.containers.record_files import RecordFiles
from recordmill.transforms.containers.tfrecord import TFRecordFile
from recordmill.transforms.records import shard_index as module
from recordmill.transforms.records.shard_index import index_shard
from recordmill.transforms.storage import local_storage
from recordmill.transforms.storage.interface import crc32c_text
from tests.transforms.show.records import framed

RECORDS = [bytes([number]) * (number * 37) for number in range(20)]
NUMBERS = [7, 0, 19, 7, 8, 3]


def write(path: Path, records: list[bytes]) -> ShardInfo:
    """A shard with its index; what its manifest says."""
    data = framed(*records)
    path.write_bytes(data)
    index_shard(str(path), None, lambda records: None)
    crc32c = crc32c_text(google_crc32c.Checksum(data))
    return ShardInfo(path.name, len(records), len(data), crc32c, hashlib.sha256(data).hexdigest())


def replace(path: Path, data: bytes) -> None:
    """Another file of that name; written in the same second, perhaps."""
    before = path.stat().st_mtime_ns
    path.with_name("new").write_bytes(data)
    os.utime(path.with_name("new"), ns=(before + 1, before + 1))
    os.replace(path.with_name("new"), path)


@pytest.fixture
def shard(tmp_path) -> TFRecordFile:
    return TFRecordFile(str(tmp_path / "x"), write(tmp_path / "x", RECORDS))


def test_neighbours_are_read_in_pieces_of_bounded_size(shard, monkeypatch):
    lengths, read = [], local_storage.LocalStorage.read_ranges
    monkeypatch.setattr(indexed_file, "_SPAN_BYTES", 1000)
    monkeypatch.setattr(
        local_storage.LocalStorage,
        "read_ranges",
        lambda self, path, ranges, version: (
            lengths.extend(length for _, length in ranges) or read(self, path, ranges, version)
        ),
    )
    assert shard.read(range(20)) == RECORDS
    assert max(lengths) <= 1000


def test_mean_size_of_records(shard):
    assert TFRecordFile(shard.path).mean_bytes == shard.mean_bytes == 37 * 9.5 + 16


def test_records_come_in_order_asked_for(shard):
    assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]
    assert shard.read(range(20)) == RECORDS
    assert shard.read(np.array([1, 2])) == RECORDS[1:3]
    assert shard.read([]) == []
    assert len(shard) == 20


@pytest.mark.parametrize("number", [-1, 20, 10**9])
def test_a_record_that_there_is_not(shard, number):
    with pytest.raises(IndexError, match=f"record {number:,} does not exist"):
        shard.read([0, number])
    with pytest.raises(IndexError, match=f"record {number:,} does not exist"):
        RecordFiles([shard]).read([0, number])


def test_index_is_read_once(tmp_path, monkeypatch):
    info = write(tmp_path / "x", RECORDS)
    read = []
    decode = module.decode_index
    monkeypatch.setattr(tfrecord, "decode_index", lambda data: read.append(data) or decode(data))
    shard = TFRecordFile(str(tmp_path / "x"), info)
    assert (len(shard), read) == (20, [])
    shard.read([1])
    shard.read([2])
    assert len(read) == 1


def test_threads_read_indexes_of_several_files_concurrently(tmp_path, monkeypatch):
    files = RecordFiles([TFRecordFile(str(tmp_path / name), write(tmp_path / name, RECORDS)) for name in "xy"])
    barrier, decode = threading.Barrier(2, timeout=10), module.decode_index
    monkeypatch.setattr(tfrecord, "decode_index", lambda data: barrier.wait() is not None and decode(data))
    monkeypatch.setattr(record_files, "_BATCH_BYTES", 0)
    assert files.read([3, 23]) == [RECORDS[3], RECORDS[3]]


def test_threads_read_index_of_one_file_once(shard, monkeypatch):
    read, decode = [], module.decode_index
    monkeypatch.setattr(tfrecord, "decode_index", lambda data: read.append(data) or time.sleep(0.05) or decode(data))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shard.read, [[3]] * 4)) == [[RECORDS[3]]] * 4
    assert len(read) == 1


def test_process_forked_while_thread_reads_index_reads_records(shard, monkeypatch):
    is_reading, may_go_on, decode = threading.Event(), threading.Event(), module.decode_index
    parent = os.getpid()

    def slowly(data):
        if os.getpid() == parent:
            is_reading.set()
            may_go_on.wait(10)
        return decode(data)

    monkeypatch.setattr(tfrecord, "decode_index", slowly)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shard.read, [3])
        is_reading.wait(10)
        child = os.fork()
        if not child:
            signal.alarm(5)
            os._exit(shard.read([3]) != [RECORDS[3]])
        assert os.waitpid(child, 0)[1] == 0
        may_go_on.set()


def test_shard_without_index_is_scanned_with_one_warning(tmp_path, caplog):
    for name in ("x", "y"):
        write(tmp_path / name, RECORDS)
        (tmp_path / ".index" / f"{name}.idx").unlink()
        shard = TFRecordFile(str(tmp_path / name))
        assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]
        assert len(shard) == 20
    (said,) = caplog.messages
    assert f"recordmill index {tmp_path}" in said


def test_a_pickled_one_reads_on(shard):
    shard.read([1])
    copy = pickle.loads(pickle.dumps(shard))
    assert ("index" in vars(shard), "index" in vars(copy)) == (True, False)  # of a million records, it has 8 MB
    assert copy.read(NUMBERS) == shard.read(NUMBERS)


def open_files(folder: Path) -> list[str]:
    """Open files of this process in a folder, with deleted ones."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [target for target in targets if target.startswith(str(folder))]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux tells what is open")
def test_files_are_closed_after_last_reader(tmp_path):
    shards = [TFRecordFile(str(tmp_path / name), write(tmp_path / name, RECORDS)) for name in "xy"]
    assert RecordFiles(shards).read(range(40)) == RECORDS * 2
    shards = pickle.loads(pickle.dumps(shards))
    assert open_files(tmp_path) == []
    assert RecordFiles(shards).read(range(40)) == RECORDS * 2
    for name in "xy":
        (tmp_path / name).unlink()
    assert [shard.read([19]) for shard in shards] == [RECORDS[19:]] * 2
    assert len(open_files(tmp_path)) == 2
    del shards
    assert open_files(tmp_path) == []


LAST = """
import sys
import recordmill.transforms.containers.tfrecord as module
module.last = module.TFRecordFile(sys.argv[1])
module.last.read([0])
sys.last_module = module
del module
"""


def test_file_read_until_interpreter_ends_is_closed_in_silence(shard):
    """The module's names are gone when the reader is deleted."""
    ended = subprocess.run([sys.executable, "-c", LAST, shard.path], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_whoever_opens_file_may_collect_another_reader(shard, monkeypatch):
    class Collecting(local_storage._VersionFile):
        def __init__(self, *of):
            super().__init__(*of)
            local_storage._OPEN.release(of)

    monkeypatch.setattr(local_storage, "_VersionFile", Collecting)
    done = threading.Thread(target=lambda: RecordFiles([shard]).read([0]), daemon=True)
    done.start()
    done.join(10)
    assert not done.is_alive()


def test_threads_share_one(shard):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: shard.read([number, 0]), [*range(20)] * 20))
    assert found == [[record, RECORDS[0]] for record in RECORDS] * 20


def test_more_files_than_process_may_have_open(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    shards = [TFRecordFile(str(tmp_path / str(i)), write(tmp_path / str(i), [b"%d" % i])) for i in range(600)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = len(os.listdir("/dev/fd"))  # of tests before
    resource.setrlimit(resource.RLIMIT_NOFILE, (others + 450, hard))
    try:
        assert RecordFiles(shards).read(range(600)) == [b"%d" % i for i in range(600)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda index: index.replace(b"0 16\n16 53\n", b"0 69\n"), "for 19 records, but the manifest says 20"),
        (
            lambda index: b"".join(index.splitlines(keepends=True)[:-1]),
            r"for a shard of 6,631 bytes, but the shard has 7,350",
        ),
        (lambda index: index[:-1], "last line is truncated"),
    ],
    ids=["two as one", "a line less", "cut"],
)
def test_index_stale_or_damaged_is_error(tmp_path, change, told):
    info = write(tmp_path / "x", RECORDS)
    file = tmp_path / ".index" / "x.idx"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(IndexMismatchError, match=rf"\.index/x\.idx.*{told}.*recordmill index"):
        TFRecordFile(str(tmp_path / "x"), info).read([0])
    index_shard(str(tmp_path / "x"), 20, lambda records: None)
    assert TFRecordFile(str(tmp_path / "x"), info).read(NUMBERS) == [RECORDS[number] for number in NUMBERS]


def test_index_of_similar_shard(tmp_path):
    info = write(tmp_path / "x", RECORDS)
    write(tmp_path / "y", RECORDS[::-1])
    (tmp_path / ".index" / "y.idx").replace(tmp_path / ".index" / "x.idx")
    with pytest.raises(RecordError, match=r"x: record 3 at byte .*recordmill verify"):
        TFRecordFile(str(tmp_path / "x"), info).read([3])


def test_shard_that_was_replaced_before_it_is_read_is_error(tmp_path, shard):
    replace(tmp_path / "x", framed(*(b"?" * len(record) for record in RECORDS)))
    with pytest.raises(RecordError, match=r"x has changed or was deleted since it was opened"):
        shard.read([3])


def test_replaced_shard_is_an_error(tmp_path, shard):
    replace(tmp_path / "x", framed(*RECORDS, *RECORDS))
    index_shard(str(tmp_path / "x"), None, lambda records: None)
    with pytest.raises(RecordError, match=r"x has changed or was deleted since it was opened") as caught:
        shard.read([3])
    assert type(caught.value) is RecordError


def test_shard_replaced_meanwhile_is_read_on_as_it_was(tmp_path, shard):
    shard.read([0])
    replace(tmp_path / "x", framed(*(b"?" * len(record) for record in RECORDS)))
    assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]


def test_shard_written_over_is_error(tmp_path, shard):
    shard.read([0])
    before = (tmp_path / "x").stat().st_mtime_ns
    with (tmp_path / "x").open("r+b") as file:
        file.write(framed(*(b"?" * len(record) for record in RECORDS)))
    os.utime(tmp_path / "x", ns=(before + 1, before + 1))
    with pytest.raises(RecordError, match=r"x has changed or was deleted since it was opened"):
        shard.read([3])


def test_shard_cut_in_mid_epoch_is_error(tmp_path, shard):
    before = (tmp_path / "x").stat()
    assert shard.read([19]) == RECORDS[19:]
    os.truncate(tmp_path / "x", before.st_size - 10)
    os.utime(tmp_path / "x", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(RecordError, match=r"x: record 19 at byte 6,631: .*703.*recordmill verify"):
        shard.read([19])


@pytest.mark.parametrize(("at", "reason"), [(3, "length_crc"), (9, "length_crc"), (20, "data_crc"), (-1, "data_crc")])
def test_damaged_record_is_error_and_its_neighbours_are_read(tmp_path, at, reason):
    info = write(tmp_path / "x", RECORDS)
    data = bytearray((tmp_path / "x").read_bytes())
    start = sum(len(record) + 16 for record in RECORDS[:5])
    data[start + at % (len(RECORDS[5]) + 16)] ^= 1
    (tmp_path / "x").write_bytes(data)
    shard = TFRecordFile(str(tmp_path / "x"), info)
    assert shard.read([4, 6]) == [RECORDS[4], RECORDS[6]]
    with pytest.raises(RecordError, match=f"record 5 at byte {start:,}") as raised:
        shard.read([4, 5])
    assert raised.value.reason == reason


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_shard_not_as_manifest_says_is_error_at_once(tmp_path, damage):
    info = write(tmp_path / "x", RECORDS)
    damage(tmp_path / "x")
    with pytest.raises(RecordError, match=f"{tmp_path}/x"):
        TFRecordFile(str(tmp_path / "x"), info).read([])
    with pytest.raises(RecordError, match=f"{tmp_path}/x"):
        TFRecordFile(str(tmp_path / "x"), info).check()


def test_files_are_one_after_other(tmp_path):
    shards = [
        TFRecordFile(str(tmp_path / name), write(tmp_path / name, records))
        for name, records in {"a": RECORDS[:7], "b": [], "c": RECORDS[7:8], "d": RECORDS[8:]}.items()
    ]
    files = RecordFiles(shards)
    numbers = [*range(20), *random.Random(0).choices(range(20), k=30)]
    assert len(files) == 20
    assert files.read(numbers) == [RECORDS[number] for number in numbers]
    assert len(RecordFiles([])) == 0


def in_bucket(server, tmp_path, name: str, records: list[bytes]) -> ShardInfo:
    info = write(tmp_path / name, records)
    server.put(f"out/{name}", (tmp_path / name).read_bytes())
    server.put(f"out/.index/{name}.idx", (tmp_path / ".index" / f"{name}.idx").read_bytes())
    return info


def test_in_bucket_near_records_are_one_request(gcs, tmp_path, monkeypatch):
    monkeypatch.setattr(indexed_file, "_GAP_BYTES", 700)
    shard = TFRecordFile("gs://bucket/out/x", in_bucket(gcs, tmp_path, "x", RECORDS))
    shard.read([0])
    gcs.log.clear()
    assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]
    assert [call.operation for call in gcs.log] == [
        "read"
    ] * 2  # 0, 3, 7 and 8 are within 700 bytes of one another; 19 is far


def test_in_bucket_shard_is_known_by_its_checksum(gcs, tmp_path):
    info = in_bucket(gcs, tmp_path, "x", RECORDS)
    other = [b"?" * len(record) for record in RECORDS]
    replaced = TFRecordFile("gs://bucket/out/x", info)
    opened = TFRecordFile("gs://bucket/out/x", info)
    opened.read([0])
    gcs.put("out/x", framed(*other))
    with pytest.raises(RecordError, match="CRC-32C"):
        replaced.read([3])
    with pytest.raises(RecordError, match="has changed or was deleted since it was opened"):
        opened.read([3])


def test_in_bucket_many_files_are_read_at_once(gcs, tmp_path):
    shards = [
        TFRecordFile(f"gs://bucket/out/{number}", in_bucket(gcs, tmp_path, str(number), [record]))
        for number, record in enumerate(RECORDS)
    ]
    assert RecordFiles(shards).read([*NUMBERS, *range(20)]) == [RECORDS[number] for number in (*NUMBERS, *range(20))]
