"""Images whose tiles several threads cut and encode. Each image is decoded once per shard."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from threading import Lock

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.rejects import Rejected, UnusableError
from recordmill.transforms.encoders.encode_examples import ExampleEncoder, LoadedImage, tile_error
from recordmill.transforms.encoders.encode_masks import WholeMaps
from recordmill.transforms.images.cut_tiles import WholeImage, read_whole
from recordmill.transforms.images.load_images import DECODING, read_or_reject
from recordmill.transforms.runtime.threads import return_memory

_LARGE_PIXELS = 1 << 24
"""Pixels of an image whose memory is returned at once, which takes milliseconds."""


def find_images(block: Block) -> Iterator[tuple[int, int, bool]]:
    """Yield runs of consecutive rows: first row, end, and True for the tiles of one image, which must be cut.

    A tile that is its complete image is read like any whole image.

    >>> from recordmill.schemas.block import encode_rows
    >>> sides = encode_rows("image_size_px", [(2, 2), (2, 2), (3, 3), (4, 4)])
    >>> whole_sides = encode_rows("whole_size_px", [(4, 2), (4, 2), (3, 3), (0, 0)])
    >>> block = Block(image_size_px=sides, whole_size_px=whole_sides, whole_id=np.array([7, 7, 8, 0]),
    ...     tile_xy_px=encode_rows("tile_xy_px", [(0, 0), (2, 0), (0, 0), (-1, -1)]))
    >>> list(find_images(block))
    [(0, 2, True), (2, 4, False)]
    """
    if block.tile_xy_px is None:
        yield 0, len(block), False
        return
    is_part = (block.tile_xy_px[:, 0] >= 0) & (block.image_size_px != block.whole_size_px).any(axis=1)
    image = np.where(is_part, block.whole_id, 0)
    borders = np.flatnonzero((np.diff(image) != 0) | (np.diff(is_part.astype(np.int8)) != 0)) + 1
    starts = [0, *borders.tolist()] if len(block) else []
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        yield start, end, bool(is_part[start])


class DividedImage:
    """Image of which a shard has tiles. The first thread reads it; it is dropped after its last batch.

    The constructor waits for the image's part of the budget of decoded images. It runs in the thread that submits the
    batches: threads of the pool would wait for images whose batches are queued behind them.

    Args:
        first: One of its tiles.
        batches: Number of batches that call `load`.
    """

    def __init__(self, first: ImageTask, batches: int, encoder: ExampleEncoder, rules: ImageRules):
        self._first, self._batches, self._encoder, self._rules = first, batches, encoder, rules
        self._lock, self._budget = Lock(), ExitStack()
        self._whole: WholeImage | Rejected | None = None
        self._maps: WholeMaps | None = None
        self.is_closed = False
        assert first.tile
        pixels = first.tile.whole_width * first.tile.whole_height
        self._is_large = pixels > _LARGE_PIXELS
        self._read_whole = partial(read_whole, tile=first.tile, rules=rules.of_image(first))
        self._budget.enter_context(DECODING.part(pixels))

    def load(self, tasks: list[ImageTask], block: Block) -> list[LoadedImage]:
        """Return the tiles of a batch, whose rows in the Block are those of `tasks`."""
        try:
            return self._load_tiles(tasks, block)
        finally:  # no local variable has the pixels here, so that close() frees them
            with self._lock:
                self._batches -= 1
                is_done = not self._batches
            if is_done:
                self.close()

    def _load_tiles(self, tasks: list[ImageTask], block: Block) -> list[LoadedImage]:
        with self._lock:
            if self._whole is None and not self.is_closed:
                self._read()
            whole = self._whole
        return [self._load_tile(whole, task, block, row) for row, task in enumerate(tasks)]

    def close(self) -> None:
        """Drop the pixels. Batches that no thread has begun have no images then."""
        self.is_closed = True
        self._whole = self._maps = None
        if self._is_large:
            return_memory()
        self._budget.close()

    def _read(self) -> None:
        # The maps are read first, because decoding takes several times their memory.
        try:
            self._maps = self._encoder.read_maps(self._first)
        except UnusableError as fault:
            self._whole = self._first.rejected(fault.reason, fault.detail)
            return
        if self._is_large and (self._maps.maps or self._maps.panoptic is not None):
            return_memory()  # of the decoded maps
        self._whole = read_or_reject(self._first, self._read_whole)

    def _load_tile(self, whole: WholeImage | Rejected | None, task: ImageTask, block: Block, row: int) -> LoadedImage:
        assert task.tile is not None
        if whole is None or isinstance(whole, Rejected):
            return LoadedImage(task, whole and msgspec.structs.replace(whole, annotations=task.annotation_rows))
        try:
            stored = whole.cut(task.tile, task.width or 0, task.height or 0, self._rules)
        except UnusableError as fault:
            raise tile_error(task, fault) from fault
        return self._encoder.draw(task, block, row, stored, self._maps)
