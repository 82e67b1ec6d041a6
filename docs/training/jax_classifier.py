"""Train a classifier in JAX, on batches of Grain.

docs/training.md has the commands that write its data set.
"""

import grain
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import recordmill

SIZE, BATCH, STEPS = 64, 32, 200

data = recordmill.open("classes")


def prepare(example):
    image = Image.fromarray(example["image"]).resize((SIZE, SIZE))
    return {"image": np.asarray(image, np.float32) / 255, "label": example["label"]}


examples = grain.MapDataset.source(data["train"].grain()).shuffle(seed=0).repeat().map(prepare)
batches = examples.batch(BATCH).to_iter_dataset()
iterator = iter(batches)


def logits_of(weights, images):
    hidden = jax.nn.relu((images - 0.5).reshape(BATCH, -1) @ weights["hidden"])
    return hidden @ weights["classes"]


def loss_of(weights, batch):
    chances = jax.nn.log_softmax(logits_of(weights, batch["image"]))
    return -jnp.take_along_axis(chances, batch["label"][:, None], axis=1).mean()


@jax.jit
def step(weights, batch):
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients), loss


first, second = jax.random.split(jax.random.key(0))
weights = {
    "hidden": jax.random.normal(first, (SIZE * SIZE * 3, 128)) / SIZE,
    "classes": jax.random.normal(second, (128, data.num_classes)) / 128**0.5,
}
history = []
for _ in range(STEPS):
    weights, loss = step(weights, next(iterator))
    history.append(float(loss))
state = iterator.get_state()  # save it with the weights; iterator.set_state(state) continues there
