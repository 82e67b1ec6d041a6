"""ArrayRecord files: the bytes of array_record's own writer, read in order and by number; damage is named."""

import hashlib
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest

from recordmill.schemas.errors import JobError, RecordError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.record_files import RecordFiles
from recordmill.transforms.storage.interface import crc32c_text
from tests.transforms.containers.test_tfrecord import open_files, replace

array_record = pytest.importorskip("array_record.python.array_record_module")
arrayrecord = pytest.importorskip("recordmill.transforms.containers.arrayrecord")

ROOT = Path(__file__).resolve().parents[3]
RECORDS = [bytes([number]) * (number * 37) for number in range(20)]
NUMBERS = [7, 0, 19, 7, 8, 3]
CONTENTS = Contents(DETECTION.with_parts(()), LabelMap(()))
CONTAINER = container_of("arrayrecord")


def packed(records: list[bytes]) -> bytes:
    """The bytes of a shard."""
    pieces: list[bytes] = []
    writer = CONTAINER.create(CONTENTS, ShardKey("train", 0, 1), pieces.append)
    for record in records:
        writer.append(record[:5], record[5:])
    assert writer.close() is None
    return b"".join(pieces)


def write(path: Path, records: list[bytes]) -> ShardInfo:
    """A shard; what its manifest says."""
    data = packed(records)
    path.write_bytes(data)
    crc32c = crc32c_text(google_crc32c.Checksum(data))
    return ShardInfo(path.name, len(records), len(data), crc32c, hashlib.sha256(data).hexdigest())


def open_file(path: Path | str, info: ShardInfo | None = None):
    return CONTAINER.open(str(path), CONTENTS, info)


def read_in_order(path: Path | str):
    """The records of a shard with its reader."""
    reader = CONTAINER.read(str(path), CONTENTS)
    return list(reader.records()), reader


@pytest.fixture
def shard(tmp_path):
    return open_file(tmp_path / "x", write(tmp_path / "x", RECORDS))


@pytest.mark.parametrize("records", [RECORDS, [], [b""], [os.urandom(3_000_000)]], ids=["20", "none", "empty", "large"])
def test_bytes_are_those_of_the_library_s_writer_each_time(tmp_path, records):
    writer = array_record.ArrayRecordWriter(str(tmp_path / "theirs"), "group_size:1,uncompressed")
    for record in records:
        writer.write(record)
    writer.close()
    assert packed(records) == packed(records) == (tmp_path / "theirs").read_bytes()


def test_written_in_chunks_once_complete():
    pieces: list[bytes] = []
    writer = CONTAINER.create(CONTENTS, ShardKey("train", 0, 1), pieces.append)
    for _ in range(5):
        writer.append(bytes(1_000_000))
    assert pieces == []
    writer.close()
    assert len(pieces) > 4
    assert max(map(len, pieces)) <= 1 << 20


def test_temporary_file_has_no_name_and_is_closed_after_an_exception(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writer = CONTAINER.create(CONTENTS, ShardKey("train", 0, 1), len)
    writer.append(b"x" * 100_000)
    assert os.listdir(tmp_path) == []
    assert len(open_files(tmp_path)) >= 1
    del writer
    assert open_files(tmp_path) == []


FULL = """
import resource, signal
from tests.transforms.containers.test_arrayrecord import packed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
packed([bytes(50_000)] * 100)
"""


def test_temporary_folder_that_is_full(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", FULL], env=environment, capture_output=True, text=True, timeout=60)
    line = ended.stderr.splitlines()[-1]
    assert JobError.__name__ in line
    assert f"{tmp_path}: an ArrayRecord shard cannot be written" in line
    assert "no space is left" in line
    assert "Set TMPDIR" in line


def test_no_temporary_folder(tmp_path, monkeypatch, gcs):
    write(tmp_path / "x", RECORDS)
    gcs.put("x", (tmp_path / "x").read_bytes())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    for use in (
        lambda: CONTAINER.create(CONTENTS, ShardKey("train", 0, 1), len),
        lambda: CONTAINER.open("gs://bucket/x", CONTENTS, None).read([0]),
        lambda: list(CONTAINER.read("gs://bucket/x", CONTENTS).records()),
    ):
        with pytest.raises(JobError, match=r"missing: an ArrayRecord shard cannot be written .* Set TMPDIR"):
            use()


def test_read_in_order_with_digest(tmp_path):
    info = write(tmp_path / "x", RECORDS)
    records, reader = read_in_order(tmp_path / "x")
    assert records == RECORDS
    assert (reader.examples, reader.record_bytes) == (20, sum(map(len, RECORDS)))
    assert (reader.size, reader.sha256.hexdigest(), reader.index()) == (info.bytes, info.sha256, None)
    assert list(open_file(tmp_path / "x", info).in_order()) == RECORDS


def test_records_by_number(shard):
    assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]
    assert shard.read([]) == []
    assert len(open_file(shard.path)) == len(shard) == 20


@pytest.mark.parametrize("number", [-1, 20, 10**9])
def test_a_record_that_there_is_not(shard, number):
    with pytest.raises(IndexError, match=f"record {number:,} does not exist"):
        shard.read([0, number])


def test_pickled_and_shared_by_threads(shard):
    shard = pickle.loads(pickle.dumps(shard))
    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(lambda number: shard.read([number, 0]), [*range(20)] * 20))
    assert pairs == [[record, RECORDS[0]] for record in RECORDS] * 20


FORKS = """
import multiprocessing, sys, threading
from pathlib import Path
from tests.transforms.containers.test_arrayrecord import RECORDS, open_file, packed
folder, method = Path(sys.argv[1]), sys.argv[2]
records = RECORDS * 50
shard = open_file(folder / "x")

def work(number):
    (folder / f"y{number}").write_bytes(packed(records))
    assert list(open_file(folder / f"y{number}").in_order()) == records
    assert shard.read(range(20)) == RECORDS
    return shard.read([number])[0]

if __name__ == "__main__":
    assert shard.read(range(20)) == RECORDS  # the library has started its threads
    packed(records)
    for thread in [threading.Thread(target=shard.read, args=(list(range(20)) * 100,)) for _ in range(4)]:
        thread.start()
    with multiprocessing.get_context(method).Pool(4) as pool:
        assert pool.map_async(work, range(16), chunksize=1).get(60) == RECORDS[:16]
    print("done")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_write_and_read_several_shards(tmp_path, method):
    """Also forked ones, of a process whose threads read."""
    write(tmp_path / "x", RECORDS)
    (tmp_path / "forks.py").write_text(FORKS)
    command = [sys.executable, str(tmp_path / "forks.py"), str(tmp_path), method]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
    assert ended.stdout == "done\n", ended.stderr
    assert {(tmp_path / f"y{number}").read_bytes() for number in range(16)} == {packed(RECORDS * 50)}


def test_files_are_closed_after_last_reader(tmp_path):
    shards = [open_file(tmp_path / name, write(tmp_path / name, RECORDS)) for name in "xy"]
    assert RecordFiles(shards).read(range(40)) == RECORDS * 2
    assert len(open_files(tmp_path)) >= 2
    del shards
    assert open_files(tmp_path) == []


def test_more_files_than_process_may_have_open(tmp_path):
    resource = pytest.importorskip("resource")
    one = packed([b"a"])
    for number in range(300):
        (tmp_path / str(number)).write_bytes(one)
    shards = [open_file(tmp_path / str(number)) for number in range(300)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = len(os.listdir("/dev/fd"))  # of tests before
    resource.setrlimit(resource.RLIMIT_NOFILE, (others + 350, hard))
    try:
        assert RecordFiles(shards).read(range(300)) == [b"a"] * 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_shard_replaced_meanwhile_is_read_on_as_it_was(tmp_path, shard):
    shard.read([0])
    replace(tmp_path / "x", packed([b"?"] * 20))
    assert shard.read(NUMBERS) == [RECORDS[number] for number in NUMBERS]


def test_shard_replaced_before_it_is_read(tmp_path, shard):
    replace(tmp_path / "x", packed([b"?" * len(record) for record in RECORDS]))
    with pytest.raises(RecordError, match=r"x has changed or was deleted since it was opened"):
        shard.read([3])


def test_shard_written_over(tmp_path, shard):
    shard.read([0])
    before = (tmp_path / "x").stat().st_mtime_ns
    with (tmp_path / "x").open("r+b") as file:
        file.write(packed([b"?" * len(record) for record in RECORDS]))
    os.utime(tmp_path / "x", ns=(before + 1, before + 1))
    with pytest.raises(RecordError, match=r"x has changed or was deleted since it was opened"):
        shard.read([3])


def flip(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


LARGE = [*RECORDS[:9], b"@" * 5000, *RECORDS[10:]]


@pytest.mark.parametrize("offset", [0, 2000, 4999])
def test_flipped_byte_names_the_record_and_others_are_read(tmp_path, offset):
    info, data = write(tmp_path / "x", LARGE), packed(LARGE)
    (tmp_path / "x").write_bytes(flip(data, data.index(LARGE[9]) + offset))
    shard = open_file(tmp_path / "x", info)
    assert shard.read([8, 10]) == [LARGE[8], LARGE[10]]
    with pytest.raises(RecordError, match=r"/x: record 9: array_record cannot read it: chunk data hash mismatch"):
        shard.read([8, 9])
    with pytest.raises(RecordError, match="record 9: "):
        list(shard.in_order())
    reader = CONTAINER.read(str(tmp_path / "x"), CONTENTS)
    with pytest.raises(RecordError) as caught:
        list(reader.records())
    assert (caught.value.record, caught.value.reason, reader.examples) == (9, "data_crc", 9)
    assert "; " not in caught.value.detail


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "at least 64KB"),
        (lambda data: b"tfrecord" * 10_000, "hash mismatch"),
        (lambda data: data[:-1], "chunk boundary"),
        (lambda data: data[:-65_536], "damaged or truncated"),
        (lambda data: flip(data, len(data) - 65_536 + 70), "hash mismatch"),
    ],
    ids=["empty", "another format", "cut by a byte", "without its last block", "flipped footer"],
)
def test_file_without_footer_is_unreadable(tmp_path, damage, message):
    (tmp_path / "x").write_bytes(damage(packed(RECORDS)))
    with pytest.raises(RecordError, match=message) as caught:
        read_in_order(tmp_path / "x")
    assert (caught.value.record, caught.value.reason) == (None, "unreadable")
    for read in (len, lambda file: file.read([0]), lambda file: list(file.in_order())):
        with pytest.raises(RecordError, match=f"/x: array_record cannot open it: .*{message}.*recordmill verify"):
            read(open_file(tmp_path / "x"))


DAMAGED = """
import random, signal, sys
from pathlib import Path
from recordmill.schemas.errors import RecordError
from tests.transforms.containers.test_arrayrecord import LARGE, open_file, packed, read_in_order

good, path, draw = packed(LARGE), Path(sys.argv[1]), random.Random(int(sys.argv[2]))
for number in range(300):
    signal.alarm(20)
    data, offset = bytearray(good), draw.choice([draw.randrange(len(good)), len(good) - draw.randrange(70_000)])
    match draw.randrange(4):
        case 0: data[offset % len(good)] ^= 1 << draw.randrange(8)
        case 1: del data[offset:]
        case 2: data[offset : offset + 500] = draw.randbytes(500)
        case 3: del data[offset : offset + draw.randrange(70_000)]
    path.write_bytes(data)
    try:
        records = read_in_order(path)[0]
        assert records == LARGE, (number, offset)  # the damage is in the space between blocks
    except RecordError:
        pass
    for number in range(20):
        try:
            assert open_file(path).read([number]) == [LARGE[number]]
        except RecordError:
            pass
print("done")
"""


def test_no_damage_ends_or_halts_the_process(tmp_path):
    command = [sys.executable, "-c", DAMAGED, str(tmp_path / "x"), "7"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_in_bucket_file_is_copied_once_for_all_threads(gcs, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    info = write(tmp_path / "x", RECORDS)
    gcs.put("out/x", (tmp_path / "x").read_bytes())
    (tmp_path / "x").unlink()
    shard = open_file("gs://bucket/out/x", info)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number, file=shard: file.read([number]), range(20))) == [
            [record] for record in RECORDS
        ]
    assert [call.operation for call in gcs.log].count("read") == 1
    assert list(shard.in_order()) == RECORDS
    assert read_in_order("gs://bucket/out/x")[0] == RECORDS
    assert read_in_order("gs://bucket/out/x")[1].sha256.hexdigest() == info.sha256
    del shard
    assert open_files(tmp_path) == []


def test_in_bucket_replaced_shard(gcs, tmp_path):
    info = write(tmp_path / "x", RECORDS)
    gcs.put("out/x", (tmp_path / "x").read_bytes())
    replaced, opened = open_file("gs://bucket/out/x", info), open_file("gs://bucket/out/x", info)
    opened.check()
    gcs.put("out/x", packed([b"?" * len(record) for record in RECORDS]))
    with pytest.raises(RecordError, match="CRC-32C"):
        replaced.read([3])
    with pytest.raises(RecordError, match="has changed or was deleted since it was opened"):
        opened.read([3])


def test_numbers_of_several_files(tmp_path):
    shards = [
        open_file(tmp_path / name, write(tmp_path / name, records))
        for name, records in {"a": RECORDS[:7], "b": [], "c": RECORDS[7:]}.items()
    ]
    numbers = random.Random(0).choices(range(20), k=30)
    assert RecordFiles(shards).read(numbers) == [RECORDS[number] for number in numbers]
