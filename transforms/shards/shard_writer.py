"""A shard from its plan to its file: records made and framed, and the file made visible when it is whole. What an
earlier run has finished is found and kept."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, join_blocks
from recordmill.schemas.picture_features import has_picture
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.blocks.image_tasks import NO_IMAGES, BlockTasks
from recordmill.transforms.blocks.order_images import hash_images, image_order
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.duplicates.fingerprint_images import ImageFingerprints
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.coders import pack
from recordmill.transforms.runtime.made_by import made_by
from recordmill.transforms.shards.encode_pictures import NO_RECORD
from recordmill.transforms.shards.record_maker import RecordContext
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, ShardRecipe
from recordmill.transforms.statistics.count_images import ImageCounter

_LOGGER = logging.getLogger(__name__)

_MAY_PASS = (Reason.IMAGE_MISSING, Reason.IMAGE_INACCESSIBLE, Reason.MASK_MISSING)
"""Reasons of rejects that may have passed since an earlier run, so that the shard is written again."""


def ordered_block(packed: Iterable[bytes], seed: int) -> Block:
    """Join the packed Blocks of a shard, in any order, to one Block of its images in order."""
    blocks = [unpack_block(data) for data in packed if data]
    if len(blocks) < 2:
        return blocks[0] if blocks else NO_IMAGES
    # Each Block is in order, and no other Block has images between its images.
    firsts = join_blocks([block.cut(0, 1) for block in blocks])
    order = image_order(firsts, hash_images(firsts.image_id, seed))
    return join_blocks([blocks[index] for index in order.tolist()])


class ShardWriter:
    """Writes the shards of a job."""

    def __init__(self, recipe: ShardRecipe, of: RecordContext):
        self.recipe = recipe
        self.labels = of.labels
        self.table = of.table
        self._finished = FinishedShards(recipe)
        self._make = recipe.maker.start(of)

    def finish(self, key: ShardKey, packed: Iterable[bytes]) -> ShardResult:
        """Write a shard, or find that an earlier run has: it left a ShardResult of the same plan and versions, and the
        file is there, with the same checksum.

        Args:
            packed: Blocks of the shard's images, in any order.

        Raises:
            OSError: the output cannot be written, or images cannot be read for another reason than that they are gone.
        """
        block = ordered_block(packed, self.recipe.seed)
        block = block.having(split=np.zeros(len(block), np.int64))
        plan = self.plan_digest(key, block)
        done = self._finished.find(key, plan)
        if done and not any(reject.reason in _MAY_PASS for reject in done.rejected):
            _LOGGER.info("%s is there already, with %d examples", done.info.file, done.info.examples)
            continued = block.is_continuation
            progress.skipped_images(len(block) - (0 if continued is None else int(continued.sum())))
        else:
            done = self._write(key, BlockTasks(block, (key.split,)), plan)
            self._finished.note(done)
        progress.finished_shard()
        return done

    def plan_digest(self, key: ShardKey, block: Block) -> str:
        """What is to be written, as a hex digest: equal plans give equal bytes as long as the image files stay as they
        were listed. It does not depend on the Blocks that the images came in."""
        digest = hashlib.sha256(pack((key, msgspec.structs.replace(self.recipe, output=""), self.labels, self.table)))
        for name, column in chain(block.image_columns(), block.object_columns()):
            values = column.values if isinstance(column, Ragged) else column
            if values.any():  # a Block may lack a column without values
                digest.update(f"{name} {values.dtype.str}".encode())
                digest.update(values.tobytes())
                if isinstance(column, Ragged):
                    digest.update(column.starts.tobytes())
        digest.update(block.objects_per_image.tobytes())
        return digest.hexdigest()

    def _write(self, key: ShardKey, tasks: BlockTasks, plan: str) -> ShardResult:
        counted: Counter[Metric] = Counter()
        classes: Counter[int] = Counter()
        rejected: list[Rejected] = []
        images, fingerprints = ImageCounter(), ImageFingerprints()
        with ShardFile(self.recipe, key) as shard:
            for task, made in self._make(tasks):
                if isinstance(made, Rejected) and task.is_continuation:
                    counted[Metric.OF_REJECTED_IMAGES] += made.annotations
                    continue
                if isinstance(made, Rejected):
                    rejected.append(made)
                    progress.rejected_image(task.ref.size_bytes)
                    continue
                places = [shard.append(*record) for record in made.records]
                if places:
                    size = sum(place.bytes for place in places)
                    counted[Metric.RECORD_BYTES] += size - len(places) * FRAME_BYTES
                    place = places[0]._replace(bytes=size)
                    images.add(made.facts, place)
                    fingerprints.add(made.facts, place)
                rejected += made.rejected
                counted.update(made.counted)
                classes.update(made.class_counts)
                if not task.is_continuation:
                    progress.wrote_image(0 if made is NO_RECORD else task.ref.size_bytes)
        for reject in rejected:
            progress.rejected(reject)
        return ShardResult(
            key,
            plan,
            made_by(self.recipe.layout),
            shard.info,
            dict(counted),
            tuple(rejected),
            images.statistics(shard.info.file),
            dict(classes),
            fingerprints.of_shard(shard.info.file) if has_picture(self.table) else None,
        )
