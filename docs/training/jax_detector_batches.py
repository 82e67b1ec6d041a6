"""Batches for a detector in JAX, prepared by several processes of Grain.

All batches have the same shapes, so JAX compiles a step once, also for a TPU. docs/training.md has the commands that
write the data set.
"""

import grain
import jax
import jax.numpy as jnp
from absl import flags

import recordmill

SIZE, BATCH, OBJECTS, CELLS, STEPS, PROCESSES = 256, 8, 50, 32, 20, 2

data = recordmill.open("detection")


@jax.jit
def prepare(batch):
    """Return images, and the heat map of CenterNet: 1 in the cell and class of each object's centre."""
    ymin, xmin, ymax, xmax = jnp.moveaxis(batch["boxes"], -1, 0)
    row, column = (jnp.clip(edges / 2 * CELLS, 0, CELLS - 1).astype(int) for edges in (ymin + ymax, xmin + xmax))
    record = jnp.arange(BATCH)[:, None]
    is_object = batch["labels"] >= 0  # lists are padded by the label -1
    heat = jnp.zeros((BATCH, CELLS, CELLS, data.num_classes))
    return batch["image"] / 255, heat.at[record, row, column, batch["labels"]].max(is_object)


def main():
    """A function, because each process imports this file."""
    source = data["train"].grain(keys=["image", "boxes", "labels"], resize=(SIZE, SIZE), pad=OBJECTS)
    records = grain.MapDataset.source(source).shuffle(seed=0).repeat().to_iter_dataset()
    batches = records.batch(BATCH, drop_remainder=True)
    if PROCESSES:
        flags.FLAGS.mark_as_parsed()  # Grain needs it in programs without absl.app
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=PROCESSES))
    return [prepare(batch) for batch, _ in zip(batches, range(STEPS), strict=False)]


if __name__ == "__main__":
    prepared = main()
