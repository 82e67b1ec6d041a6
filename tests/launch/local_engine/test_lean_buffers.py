"""Beam's local runner gives what it gave, and lets go of what has gone on."""

from collections import Counter
from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, TupleCoder, VarIntCoder
from apache_beam.coders.coders import GlobalWindowCoder, IterableCoder, WindowedValueCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, execution
from apache_beam.runners.worker import bundle_processor, data_plane
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.launch.local_engine import lean_buffers

Elements = beam_fn_api_pb2.Elements
GROUPS, VALUES = 40, 3
PRE = WindowedValueCoder(TupleCoder((VarIntCoder(), BytesCoder())), GlobalWindowCoder())
POST = WindowedValueCoder(TupleCoder((VarIntCoder(), IterableCoder(BytesCoder()))), GlobalWindowCoder())


@pytest.fixture(autouse=True)
def _replaced():
    with lean_buffers.lean_buffers(PipelineOptions([])):
        yield


def grouped() -> execution.GroupingBuffer:
    """Values of 100 kB, a few of each key, as they come."""
    buffer = execution.GroupingBuffer(PRE, POST, Windowing(GlobalWindows()))
    for number in range(GROUPS * VALUES):
        item = (number % GROUPS, bytes([number]) * 100_000)
        element = WindowedValue(item, GlobalWindow().max_timestamp(), (GlobalWindow(),))
        buffer.append(PRE.get_impl().encode_nested(element))
    return buffer


@pytest.mark.parametrize("parts", [1, 3])
def test_groups_are_same_in_pieces(parts):
    ours, theirs = grouped(), grouped()
    pieces = lean_buffers.partition(ours, parts)
    assert [b"".join(part) for part in pieces] == [b"".join(part) for part in lean_buffers._partition(theirs, parts)]
    assert all(len(piece) < 2_000_000 for part in pieces for piece in part)
    assert ours.partition(parts) is pieces
    assert not ours._table


def test_group_is_let_go_unchanged_encoded(monkeypatch):
    held = []
    buffer = grouped()
    create = lean_buffers.create_OutputStream

    def watched():
        held.append(len(buffer._table))
        return create()

    monkeypatch.setattr(lean_buffers, "create_OutputStream", watched)
    lean_buffers.partition(buffer, 1)
    assert held[0] == GROUPS
    assert held == sorted(held, reverse=True)
    assert len(set(held)) > 5


def test_sent_buffer_is_released():
    buffer = grouped()
    pieces = lean_buffers.drain(buffer)
    first = next(pieces)
    assert len(buffer._grouped_output[0]) > 3
    assert len(first) + sum(map(len, pieces)) > GROUPS * VALUES * 100_000
    assert buffer._grouped_output == [[]]
    with pytest.raises(RuntimeError):
        buffer.partition(1)
    listed = execution.ListBuffer(None)
    listed.append(b"1")
    listed.append(b"2")
    assert list(lean_buffers.drain(listed)) == [b"1", b"2"]
    with pytest.raises(RuntimeError):
        list(listed)


def test_taken_elements_are_released():
    channel = data_plane.InMemoryDataChannel()
    out = channel.inverse().output_stream("other", "step")
    out.write(b"x")
    out.close()
    for instruction, step in (("mine", "a"), ("mine", "b")):
        out = channel.inverse().output_stream(instruction, step)
        out.write(step.encode())
        out.close()
    timers = channel.inverse().output_timer_stream("mine", "a", "family")
    timers.write(b"t")
    timers.close()
    before = list(channel._inputs)
    elements = lean_buffers.input_elements(channel, "mine", [])
    received = [next(elements)]
    assert len(channel._inputs) < len(before)
    received += elements
    assert received == [
        element
        for element in before
        if element.instruction_id == "mine" and not (isinstance(element, Elements.Timers) and element.is_last)
    ]
    assert {type(element) for element in received} == {Elements.Data, Elements.Timers}
    assert [element.instruction_id for element in channel._inputs] == ["other"] * len(channel._inputs)
    assert len(channel._inputs) > 0


def numbers(p: beam.Pipeline) -> beam.PCollection:
    return p | "Numbers" >> beam.Create(range(1000)) | "Pairs" >> beam.Map(lambda n: (n % 7, n))


def test_job_gives_same_output():
    """Side inputs, a PCollection that two stages read, several windows."""
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        pairs = numbers(p)
        total = pairs | "Values" >> beam.Values() | "Sum" >> beam.CombineGlobally(sum)
        groups = pairs | "Group" >> beam.GroupByKey() | "Counts" >> beam.MapTuple(lambda key, of: (key, len(list(of))))
        shared = groups | "Shared" >> beam.Map(lambda pair, of: (*pair, of), beam.pvalue.AsSingleton(total))
        again = groups | "Again" >> beam.Reshuffle() | "Largest" >> beam.CombineGlobally(max)
        counts = Counter(n % 7 for n in range(1000))
        assert_that(shared, equal_to([(key, number, 499_500) for key, number in counts.items()]), "Shared_")
        assert_that(again, equal_to([max(counts.items())]), "Again_")
        windowed = (
            pairs
            | "Stamp" >> beam.MapTuple(lambda key, n: beam.window.TimestampedValue((key, n), n))
            | "Windows" >> beam.WindowInto(FixedWindows(500))
            | "GroupInWindow" >> beam.GroupByKey()
            | "Lengths" >> beam.MapTuple(lambda key, of: (key, len(list(of))))
        )
        halves = Counter((n // 500, n % 7) for n in range(1000))
        assert_that(
            windowed | "Global" >> beam.WindowInto(GlobalWindows()),
            equal_to([(key, number) for (_, key), number in halves.items()]),
            "Windowed",
        )


def test_large_elements_are_sent_in_ordered_pieces():
    channel, buffer = data_plane.InMemoryDataChannel(), grouped()
    manager = SimpleNamespace(_worker_handler=SimpleNamespace(data_conn=channel.inverse()))
    buffer.partition(1)[0][:] = [b"x" * 11_000_000, b"a", b"y" * 11_000_000, b"z", *[b"m" * 1_000_000] * 3]
    lean_buffers._send_input_to_worker(manager, "mine", "step", buffer)
    assert [(element.data[:1], len(element.data)) for element in channel._inputs if element.data] == [
        (b"x", 11_000_000),
        (b"a", 1),
        (b"y", 11_000_000),
        (b"z", 2_000_001),
        (b"m", 1_000_000),
    ]


def test_output_of_step_is_sent_in_pieces(monkeypatch):
    sizes, operations = [], []
    drained, finish = lean_buffers.input_elements, bundle_processor.DataOutputOperation.finish

    def weighed(*args, **kwargs):
        for element in drained(*args, **kwargs):
            sizes.append(len(element.data))
            yield element

    def watched(operation):
        operations.append(operation)
        finish(operation)

    monkeypatch.setattr(data_plane.InMemoryDataChannel, "input_elements", weighed)
    monkeypatch.setattr(bundle_processor.DataOutputOperation, "finish", watched)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        large = p | "Numbers" >> beam.Create(range(50)) | "Large" >> beam.Map(lambda n: (n, b"x" * 100_000))
        keys = large | "Group" >> beam.GroupByKey() | "Keys" >> beam.Keys()
        assert_that(keys, equal_to(range(50)))
    assert sum(sizes) > 5_000_000
    assert max(sizes) < 2_000_000
    assert len(operations) > 2
    assert not any(hasattr(operation, "output_stream") for operation in operations)


def test_pinned_beam_s_sources_are_known():
    """The pinned Beam has a known hash. After a new pin: compare the methods and their callers, then add the hash."""
    assert lean_buffers.sources_hash(lean_buffers._REPLACED) in lean_buffers._KNOWN_SOURCES


def _another_finish(operation):
    """Stand for a method of a newer Beam."""


@pytest.mark.parametrize(
    ("options", "method", "is_replaced"),
    [
        ([], bundle_processor.DataOutputOperation.finish, True),
        ([], _another_finish, False),
        ([], len, False),
        (["--direct_runner_bundle_repeat=2"], bundle_processor.DataOutputOperation.finish, False),
    ],
    ids=["known", "another source", "no source", "bundles that run several times"],
)
def test_methods_of_known_beam_are_replaced_for_block(monkeypatch, options, method, is_replaced):
    buffer = execution.GroupingBuffer
    monkeypatch.setattr(buffer, "partition", lean_buffers._partition)
    monkeypatch.setattr(lean_buffers, "_REPLACED", (*lean_buffers._REPLACED[:-1], method))
    with lean_buffers.lean_buffers(PipelineOptions(options)):
        assert (buffer.partition is lean_buffers.partition) == is_replaced
    assert buffer.partition is lean_buffers._partition
