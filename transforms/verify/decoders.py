"""What parses records and opens their pictures while they are checked: TensorFlow, as training does, or without it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from recordmill.schemas.checks import Check
from recordmill.schemas.features import FeatureTable, parse_spec
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images.load_images import inspect_picture
from recordmill.transforms.images.open_picture import encoded_channels
from recordmill.transforms.records.parse_record import RecordParseError, first_line


class Opened(NamedTuple):
    """A picture's size in pixels, and how many channels a decoder gives."""

    width: int
    height: int
    channels: int


class UndecodableError(ValueError):
    """Why a picture cannot be decoded."""


def inspect(encoded: bytes, channels: int, check: str) -> Opened:
    """Look at a JPEG or PNG by the rules of what writes records: what TensorFlow does not decode is refused.

    Args:
        channels: of the decoded picture; 0 for its own.
        check: `header`, or `decode` for its pixels, too.

    Raises:
        UndecodableError
    """
    try:
        kind, width, height = inspect_picture(encoded, check)
    except UnusableError as error:
        raise UndecodableError(error.detail) from error
    return Opened(width, height, channels or encoded_channels(encoded, kind))


def decode_by_tensorflow(encoded: bytes, channels: int) -> Opened:
    """As `inspect`, with its pixels."""
    import tensorflow as tf

    try:
        image = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise UndecodableError(first_line(error)) from error
    return Opened(image.shape[1], image.shape[0], image.shape[2])


Opener = Callable[[bytes, int], Opened]
OPENERS: Mapping[Check, Opener] = {
    Check.HASHES: partial(inspect, check="header"),
    Check.DECODE: partial(inspect, check="decode"),
    Check.TENSORFLOW: decode_by_tensorflow,
}


class TensorFlowParser:
    """A `recordmill.transforms.records.parse_record.RecordParser` that is TensorFlow."""

    def __init__(self, table: FeatureTable):
        self._table = table
        self._spec = parse_spec(table)

    def __call__(self, record: bytes) -> dict[str, Any]:
        import tensorflow as tf

        try:
            parsed = tf.io.parse_single_example(record, self._spec)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # TensorFlow quotes what it cannot read
            raise RecordParseError(first_line(error)) from error
        return {feature.source: _value(parsed[feature.name]) for feature in self._table.features}


def _value(tensor: Any) -> Any:
    value = (tensor.flat_values if hasattr(tensor, "flat_values") else tensor).numpy()
    # An array of one text would lose the zero bytes at its end.
    return value if isinstance(value, bytes) else value.ravel()
