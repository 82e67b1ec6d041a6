from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.inputs.annotations import Annotation, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.layouts import CLASSIFICATION, DETECTION, KERAS
from recordmill.schemas.rejects import Metric
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.shards import encode_images
from recordmill.transforms.shards.encode_images import EncodeImages, batch_spans
from tests.transforms.blocks.of_tasks import block_of_tasks
from tests.transforms.encoders.drawn_tasks import LABELS

SIZES = st.lists(st.integers(0, 3_000_000), max_size=80)


@given(SIZES)
def test_batches_are_of_few_images_and_few_bytes(sizes):
    spans = list(batch_spans(sizes, [False] * len(sizes)))
    assert [row for start, end in spans for row in range(start, end)] == list(range(len(sizes)))
    for start, end in spans:
        assert 1 <= end - start <= 32
        assert end - start == 1 or sum(sizes[start:end]) <= 2_000_000


@given(SIZES)
def test_no_batch_could_have_taken_next_image(sizes):
    for (start, end), _ in pairwise(batch_spans(sizes, [False] * len(sizes))):
        assert end + 1 - start > 32 or sum(sizes[start : end + 1]) > 2_000_000


def test_image_in_bucket_is_batch():
    assert list(batch_spans([1] * 4, [False, True, True, False])) == [(0, 1), (1, 2), (2, 4)]


@pytest.mark.parametrize("table", [DETECTION.with_parts(()), KERAS.with_parts(())], ids=["detection", "keras"])
def test_no_byte_depends_on_the_run(tmp_path, table, monkeypatch):
    tasks = []
    for number in range(30):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (40, 30), (number, 0, 0)).save(path)
        if number % 7 == 0:
            path.write_bytes(b"broken")
        boxes = ((float(number), 0.0, 15.0, 9.0),) * (number % 4)
        annotations = tuple(Annotation(id_, 127, box, 5.0, False) for id_, box in enumerate(boxes))
        ref = ImageFile(str(path), path.stat().st_size, str(path.stat().st_mtime_ns))
        tasks.append(ImageTask(number, path.name, 40, 30, ref, "train", annotations))
    block = block_of_tasks(tasks, ("train",))
    outputs = []
    for run_images, tasks_at_once in ((64, 256), (1, 256), (10, 9)):
        monkeypatch.setattr(encode_images, "_RUN_IMAGES", run_images)
        monkeypatch.setattr(encode_images, "_TASKS_AT_ONCE", tasks_at_once)
        with ThreadPoolExecutor(2) as pool:
            maker = EncodeImages("clip", ImageRules("header"))
            runs = list(maker.start(RecordContext(LABELS, table, pool, 2))(block, "train"))
        numbers = np.concatenate([run.records_per_image for run in runs]).tolist()
        rejected = [reject for run in runs for reject in run.rejected]
        outputs.append(([b"".join(record) for run in runs for record in run.records], numbers, rejected))
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0][2]) >= 3


@pytest.mark.parametrize(("table", "turned"), [(CLASSIFICATION.with_parts(()), 1), (DETECTION.with_parts(()), 0)])
def test_only_images_of_one_class_are_turned_without_size(tmp_path, table, turned):
    path, exif = tmp_path / "a.png", Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(path, exif=exif)
    labels = ImageLabels(class_name=LABELS.categories[0].name)
    task = ImageTask(1, path.name, None, None, ImageFile(str(path), path.stat().st_size), "train", (), labels)
    with ThreadPoolExecutor(2) as pool:
        start = EncodeImages("clip", ImageRules("decode")).start(RecordContext(LABELS, table, pool, 2))
        (run,) = start(block_of_tasks([task], ("train",)), "train")
    assert run.counted[Metric.TURNED] == turned
