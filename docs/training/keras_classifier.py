"""Train a classifier in Keras.

docs/training.md has the commands that write its data set.
"""

import keras

import recordmill

SIZE, BATCH, EPOCHS = 64, 32, 20

data = recordmill.open("classes")
options = {"batch": BATCH, "resize": (SIZE, SIZE), "as_supervised": True}
train = data["train"].tensorflow(**options, shuffle=True, seed=0)
val = data["val"].tensorflow(**options)

layers = [keras.layers.Rescaling(1 / 255)]
for filters in (16, 32, 64):
    layers += [keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPooling2D()]
layers += [keras.layers.Flatten(), keras.layers.Dense(data.num_classes)]
model = keras.Sequential(layers)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
history = model.fit(train, validation_data=val, epochs=EPOCHS)
