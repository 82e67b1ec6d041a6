"""Train with static shapes and a part of the records for each host.

On a TPU, use `tf.distribute.TPUStrategy(resolver)`, and host and hosts of the pod. XLA compiles the step.

docs/training.md has the commands that write its data set.
"""

import keras
import tensorflow as tf

import recordmill

SIZE, BATCH, STEPS = 64, 32, 20

data = recordmill.open("classes")
host, hosts = 0, 2
strategy = tf.distribute.get_strategy()


def batches(host):
    return data["train"].tensorflow(
        batch=BATCH // hosts,
        resize=(SIZE, SIZE),
        as_supervised=True,
        drop_remainder=True,
        shuffle=True,
        seed=0,
        shard=(host, hosts),
    )


with strategy.scope():
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(data.num_classes)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=True)
history = model.fit(batches(host).repeat(), epochs=2, steps_per_epoch=STEPS)
