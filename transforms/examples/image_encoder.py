"""What encodes pictures, with what is known of them, as serialised tf.Examples."""

from typing import Protocol

from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.images import ImageTask, Picture
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.examples.encode_examples import Encoded, ExampleEncoder
from recordmill.transforms.examples.encode_picture_rows import PictureRowEncoder
from recordmill.transforms.images.fetch_images import Fetch, fetch_file


class ImageEncoder(Protocol):
    """Encodes the records of one data set."""

    def wants_image(self, task: ImageTask) -> bool:
        """Whether any record can come of the task; if not, its image need not be read."""

    def encode(self, task: ImageTask, picture: Picture, fetch: Fetch = fetch_file) -> Encoded | Rejected:
        """The records of an image, whose panoptic PNG, if it has one, is read by `fetch`; or why there is none."""


def encoder_of(labels: LabelMap, table: FeatureTable, box_policy: str) -> ImageEncoder:
    """What encodes images as records of `table`; see ExampleEncoder."""
    if table.record_of is RecordOf.ROW:
        return PictureRowEncoder(labels, table)
    return ExampleEncoder(labels, table, box_policy)
