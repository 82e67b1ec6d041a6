"""Run in .venv-model-garden: Model Garden's own evaluation, image by image, with given boxes for a model's.

    python evaluate_with_model_garden.py EXPERIMENT CONFIG BOXES OUTPUT

CONFIG is the YAML that train.py gets; images of both splits are evaluated, as those that validate are. BOXES is JSON,
by image id: [ymin, xmin, ymax, xmax, label] of each box, in pixels. OUTPUT becomes JSON, by image id: the AP of the
image, -1 where it has nothing to be found.
"""

import json
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
DETECTIONS = 100
"""Of an image, as the experiments have it."""


def main(experiment: str, config: str, boxes: str, output: str) -> None:
    import tensorflow as tf
    import yaml
    from official.core import exp_factory, task_factory
    from official.vision import registry_imports  # noqa: F401  which knows the experiments

    params = exp_factory.get_exp_config(experiment)
    with open(config) as file:
        params.override(yaml.safe_load(file), is_strict=True)
    params.override({"task": {"validation_data": {"global_batch_size": 1}}}, is_strict=True)
    with open(boxes) as file:
        given = json.load(file)
    found = {}
    for path in (params.task.train_data.input_path, params.task.validation_data.input_path):
        params.override({"task": {"validation_data": {"input_path": path}}}, is_strict=True)
        if getattr(params.task.validation_data, "num_examples", 0) > 0:  # Mask R-CNN's evaluation makes a file of them
            examples = sum(1 for _ in tf.data.TFRecordDataset(tf.io.gfile.glob(path)))
            params.override({"task": {"validation_data": {"num_examples": examples}}}, is_strict=True)
        task = task_factory.get_task(params.task, logging_dir=tempfile.mkdtemp(dir=os.path.dirname(output)))
        task.build_metrics(training=False)
        for _, labels in task.build_inputs(params.task.validation_data):
            id_ = str(int(labels["groundtruths"]["source_id"][0]))
            task.coco_metric.reset_states()
            task.coco_metric.update_state(labels["groundtruths"], as_detections(given[id_], labels))
            found[id_] = float(task.coco_metric.result()["AP"])
    with open(output, "w") as file:
        json.dump(found, file)


def as_detections(boxes: list, labels: dict) -> dict:
    """What a model would give that finds just these boxes; a mask fills its box."""
    import numpy as np
    import tensorflow as tf

    rows = np.zeros([1, DETECTIONS, 5], np.float32)
    rows[0, : len(boxes)] = np.reshape(boxes, [-1, 5])
    scale = np.tile(labels["image_info"].numpy()[:, 2:3, :], (1, 1, 2))
    detections = {
        "detection_boxes": rows[:, :, :4] * scale,
        "detection_classes": rows[:, :, 4].astype(np.int32),
        "detection_scores": (rows[:, :, 4] > 0).astype(np.float32),
        "detection_masks": np.ones([1, DETECTIONS, 28, 28], np.float32),
        "num_detections": np.array([len(boxes)], np.int32),
        "source_id": labels["groundtruths"]["source_id"].numpy(),
        "image_info": labels["image_info"].numpy(),
    }
    return {name: tf.constant(value) for name, value in detections.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
