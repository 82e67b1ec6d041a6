"""Reduce the copies of grouped data in Beam's local runner from four to one.

Beam keeps the table of a group while it encodes the table to one string, the string until the worker has copied it, the
copy until the last element is processed, and the output until it is in the next table. These methods pass on pieces and
free each. They also free the encoding buffer of each output, which Beam keeps for the complete job.
benchmarks/RESULTS.md has the savings."""

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import execution, fn_runner
from apache_beam.runners.worker import bundle_processor, data_plane
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

_LOGGER = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 20

_PANE = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
_partition = execution.GroupingBuffer.partition
_output_stream = data_plane.InMemoryDataChannel.output_stream
_finish = bundle_processor.DataOutputOperation.finish

_KNOWN_SOURCES = {
    "adddbedb6adf429dc4507633b64a5905f4b5c68950ca365081e6fbf64a4da82b",  # Beam 2.70 to 2.73
    "e9ed8887e7b647422522e49b80cd605041b1932eca3ad26a3acbda6d54b6521b",  # Beam 2.74 to 2.77
}
"""SHA-256 of the source code of `_REPLACED`, per tested version of Beam. Compare the methods and their callers before
you add a version."""


@contextmanager
def lean_buffers(options: PipelineOptions) -> Iterator[None]:
    """Context manager: replace the five methods in this process.

    Nothing is replaced if a method's source is not a known one, or if Beam is asked to run each bundle several times
    (`--direct_runner_bundle_repeat`), which reads an input again.
    """
    is_known = sources_hash(_REPLACED) in _KNOWN_SOURCES
    if not is_known:
        _LOGGER.debug("Beam %s: unknown source of buffer methods; the local runner keeps Beam's", beam.__version__)
    if not is_known or options.view_as(DirectOptions).direct_runner_bundle_repeat:
        yield
        return
    before = [(owner, name, getattr(owner, name)) for owner, name in _REPLACEMENTS]
    try:
        for (owner, name), method in _REPLACEMENTS.items():
            setattr(owner, name, method)
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def sources_hash(methods: Sequence[Callable]) -> str:
    """Return the SHA-256 of the methods' source code, or an empty string if a source is not available."""
    try:
        return hashlib.sha256("".join(map(inspect.getsource, methods)).encode()).hexdigest()
    except (OSError, TypeError):  # no .py file next to a compiled module
        return ""


def partition(buffer: execution.GroupingBuffer, n: int) -> list[list[bytes]]:
    """GroupingBuffer.partition: return `n` parts, each in pieces."""
    if buffer._grouped_output or not buffer._windowing.is_default():
        return _partition(buffer, n)
    encode = buffer._post_grouped_coder.get_impl().encode_to_stream
    decode_key = buffer._key_coder.get_impl().decode
    with_value = GlobalWindows.windowed_value(None, GlobalWindow().max_timestamp(), _PANE).with_value
    parts: list[list[bytes]] = [[] for _ in range(n)]
    streams = [create_OutputStream() for _ in range(n)]
    for number, key in enumerate(list(buffer._table)):
        index = number % n
        encode(with_value((decode_key(key), buffer._table.pop(key))), streams[index], True)
        if streams[index].size() > _PIECE_BYTES:
            parts[index].append(streams[index].get())
            streams[index] = create_OutputStream()
    for part, stream in zip(parts, streams, strict=True):
        part.append(stream.get())
    buffer._grouped_output = parts
    return parts


def _send_input_to_worker(manager: Any, bundle: str, transform: str, pieces: Iterable[bytes] | None) -> None:
    """BundleManager._send_input_to_worker: send and free one piece after the other. Large pieces bypass the stream,
    which would copy them twice."""
    out = manager._worker_handler.data_conn.output_stream(bundle, transform)
    for piece in drain(pieces or []):
        if len(piece) > _PIECE_BYTES:
            out.flush()
            out._flush_callback(piece)
        else:
            out.write(piece)
            out.maybe_flush()
    out.close()


def drain(pieces: Any) -> Iterator[bytes]:
    """Return the contents of a buffer and empty it. A second call is an error.

    Raises:
        RuntimeError: The buffer was read before.
    """
    if isinstance(pieces, execution.GroupingBuffer):
        (held,) = pieces.partition(1)
        pieces.partition = _refuse  # type: ignore[method-assign]
    elif isinstance(pieces, execution.ListBuffer):
        held = list(pieces)
        pieces.clear()
    else:
        held = list(pieces)
    held.reverse()
    while held:
        yield held.pop()


def _refuse(n: int) -> list[list[bytes]]:
    raise RuntimeError("what was grouped is read a second time")


def input_elements(
    channel: data_plane.InMemoryDataChannel, instruction_id: str, expected: object, abort_callback: object = None
) -> Iterator[beam_fn_api_pb2.Elements.Data | beam_fn_api_pb2.Elements.Timers]:
    """InMemoryDataChannel.input_elements: free each element after its use."""
    other_elements = []
    while channel._inputs:
        element = channel._inputs.pop(0)
        if element.instruction_id != instruction_id:
            other_elements.append(element)
        elif isinstance(element, beam_fn_api_pb2.Elements.Timers):
            if not element.is_last:
                yield element
        elif element.data or element.is_last:
            yield element
    channel._inputs = other_elements


def output_stream(channel: data_plane.InMemoryDataChannel, instruction_id: str, transform_id: str) -> Any:
    """InMemoryDataChannel.output_stream: flush at 1 MB in place of 10 MB."""
    stream: Any = _output_stream(channel, instruction_id, transform_id)
    stream._size_flush_threshold = _PIECE_BYTES
    return stream


def finish(operation: bundle_processor.DataOutputOperation) -> None:
    """DataOutputOperation.finish: free the stream and its buffer. Each bundle sets a new one."""
    _finish(operation)
    del operation.output_stream


_REPLACEMENTS: dict[tuple[Any, str], Callable] = {
    (execution.GroupingBuffer, "partition"): partition,
    (fn_runner.BundleManager, "_send_input_to_worker"): _send_input_to_worker,
    (data_plane.InMemoryDataChannel, "input_elements"): input_elements,
    (data_plane.InMemoryDataChannel, "output_stream"): output_stream,
    (bundle_processor.DataOutputOperation, "finish"): finish,
}
_REPLACED: Sequence[Callable] = [getattr(owner, name) for owner, name in _REPLACEMENTS]
