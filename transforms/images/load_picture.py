"""Image files become what is written of them: their bytes, or raw pixels."""

from recordmill.schemas.images import ImageTask, Picture, PictureRules, Transcoding
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.images.fetch_images import Fetch, fetch_file
from recordmill.transforms.images.load_images import known_kind, load_image, or_rejected
from recordmill.transforms.images.load_pixels import decode_pixels

RAW = "raw"
_RESIZE = "bilinear"


def load_picture(task: ImageTask, rules: PictureRules, fetch: Fetch = fetch_file) -> Picture | Rejected:
    """Read a task's image file by `fetch`, and make of it what `rules` say.

    Raises:
        OSError: as `recordmill.transforms.images.load_images.load_image`.
    """
    if rules.raw_size is None:
        return load_image(task, rules, fetch)
    size = rules.raw_size
    return or_rejected(task, fetch, lambda data: _raw(data, size))


def _raw(data: bytes, size: tuple[int, int]) -> Picture:
    pixels = decode_pixels(data, size, _RESIZE)
    height, width = size
    return Picture(pixels.tobytes(), RAW, width, height, "", None, Transcoding(known_kind(data) or "other", len(data)))
