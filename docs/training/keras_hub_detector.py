"""Train KerasHub's RetinaNet.

docs/training.md has the commands that write its data set.
"""

import keras_hub

import recordmill

SIZE, BATCH, STEPS = 256, 8, 50

data = recordmill.open("detection")


def prepare(example):
    return example["image"], {"boxes": example["boxes"] * SIZE, "labels": example["labels"]}


batches = data["train"].tensorflow(batch=BATCH, resize=(SIZE, SIZE), drop_remainder=True, shuffle=True, seed=0)
encoder = keras_hub.models.ResNetBackbone(
    input_conv_filters=[64],
    input_conv_kernel_sizes=[7],
    stackwise_num_filters=[64, 128, 256, 512],
    stackwise_num_blocks=[2, 2, 2, 2],
    stackwise_num_strides=[1, 2, 2, 2],
    block_type="basic_block",
    image_shape=(SIZE, SIZE, 3),
)
backbone = keras_hub.models.RetinaNetBackbone(
    encoder, min_level=3, max_level=7, use_p5=False, image_shape=(SIZE, SIZE, 3)
)
model = keras_hub.models.RetinaNetObjectDetector(backbone, num_classes=data.num_classes, bounding_box_format="yxyx")
model.compile("adam", box_loss="mean_absolute_error", classification_loss="binary_crossentropy")
history = model.fit(batches.map(prepare).repeat(), epochs=1, steps_per_epoch=STEPS)
