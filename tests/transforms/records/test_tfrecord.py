import io
import pickle
import struct
from contextlib import nullcontext
from itertools import product

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordError
from recordmill.transforms.records.tfrecord import (
    framed_size,
    masked_crc32c,
    read_lengths,
    read_records,
    read_views,
)
from tests.transforms.show.records import framed

RECORDS = [b"", b"the first", b"\x00\xff\n" * 5]
RECORDS_LISTS = st.lists(st.binary(max_size=300), max_size=6)


WHOLE = framed(*RECORDS)
ENDS = [len(framed(*RECORDS[:count])) for count in range(len(RECORDS) + 1)]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("tfrecord") / "x.tfrecord")


def ours(data: bytes) -> tuple[list[bytes], RecordError | None]:
    """The records up to the first fault, and the fault. Those of `read_views` are the same."""
    records, fault = outcome(read_records, data)
    views, fault_of_view = outcome(read_views, data)
    assert (views, str(fault_of_view)) == (records, str(fault))
    return records, fault


def outcome(read, data: bytes) -> tuple[list[bytes], RecordError | None]:
    records = []
    try:
        for record in read(io.BytesIO(data)):
            records.append(bytes(record))
    except RecordError as error:
        return records, error
    return records, None


def tensorflow_s(data: bytes, path: str) -> tuple[list[bytes], bool]:
    """The records up to the first fault, and whether there is one, as TensorFlow sees it."""
    with open(path, "wb") as file:
        file.write(data)
    records = []
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            records.append(record)
    except tf.errors.DataLossError:
        return records, True
    return records, False


@settings(max_examples=40)
@given(records=RECORDS_LISTS)
def test_files_are_tensorflow_s_writer(path, records):
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    with open(path, "rb") as file:
        data = file.read()
    assert framed(*records) == data
    assert ours(data) == (records, None)
    assert len(data) == sum(framed_size(len(record)) for record in records)


def test_file_cut_anywhere_gives_records_before_cut(path):
    for size in range(len(WHOLE) + 1):
        whole = sum(end <= size for end in ENDS) - 1
        records, fault = ours(WHOLE[:size])
        assert records == RECORDS[:whole]
        assert (fault and (fault.record, fault.reason)) == (None if size in ENDS else (whole, "truncated"))
        lengths: list[int] = []
        with nullcontext() if size in ENDS else pytest.raises(RecordError, match="the file ends"):
            lengths.extend(read_lengths(io.BytesIO(WHOLE[:size]), size))
        assert lengths == [framed_size(len(record)) for record in records]
        # TensorFlow takes a cut within a record's first 12 bytes for the end of the file; we do not.
        in_header = size - ENDS[whole] < 12
        assert tensorflow_s(WHOLE[:size], path) == (records, not in_header), size


def test_flipped_bit_is_named_by_record_and_part(path):
    """TensorFlow finds one of the eight bits of a byte, as we do."""
    for offset, bit in product(range(len(WHOLE)), range(8)):
        damaged = bytearray(WHOLE)
        damaged[offset] ^= 1 << bit
        records, fault = ours(bytes(damaged))
        index = sum(end <= offset for end in ENDS) - 1
        assert records == RECORDS[:index]
        if bit == offset % 8:
            assert tensorflow_s(bytes(damaged), path) == (records, True)
        assert fault.offset == ENDS[index]
        assert (fault.record, fault.reason) == (index, "length_crc" if offset - ENDS[index] < 12 else "data_crc")


def test_length_beyond_file_costs_no_memory():
    length = struct.pack("<Q", 1 << 50)
    data = length + struct.pack("<I", masked_crc32c(length)) + b"few bytes"
    records, fault = ours(framed(b"good") + data)
    assert records == [b"good"]
    assert (
        str(fault) == f"record 1: the file ends 21 bytes into a record of {framed_size(1 << 50)} bytes with its frame"
    )


class _Dripping(io.BytesIO):
    """A stream that gives less than it is asked for, as sockets do."""

    def read(self, size=-1):
        return super().read(min(size, 3))

    def readinto(self, buffer):
        return super().readinto(buffer[:3])


@pytest.mark.parametrize("read", [read_records, read_views])
def test_short_reads_are_no_truncation(read):
    assert list(map(bytes, read(_Dripping(WHOLE)))) == RECORDS


def test_records_of_more_than_the_shared_memory():
    records = [b"a" * 3, b"b" * ((1 << 20) + 1), b"c" * (1 << 20), b""]
    assert ours(framed(*records)) == (records, None)


def test_record_error_crosses_process_borders():
    error = pickle.loads(pickle.dumps(RecordError("the checksum is wrong", 3, "data_crc", 99)))
    assert (error.record, error.reason, error.detail, error.offset) == (3, "data_crc", "the checksum is wrong", 99)
    assert str(error) == "record 3: the checksum is wrong"
