"""Images are encoded in batches of neighbours."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.transforms.shards.encode_pictures import batches


def sized(id_: int, size: int) -> ImageTask:
    return ImageTask(id_, f"{id_}.jpg", None, None, ImageRef(f"{id_}.jpg", size), "train", ())


def size_of(task: ImageTask) -> int:
    return task.ref.size_bytes


@given(st.lists(st.integers(0, 3_000_000), max_size=40))
def test_batches_are_of_few_images_and_few_bytes(sizes):
    tasks = [sized(id_, size) for id_, size in enumerate(sizes)]
    found = list(batches(tasks, size_of))
    assert [task for batch in found for task in batch] == tasks
    for batch in found:
        assert 1 <= len(batch) <= 8
        assert len(batch) == 1 or sum(task.ref.size_bytes for task in batch) <= 2_000_000


@given(st.lists(st.integers(0, 3_000_000), max_size=40))
def test_no_batch_could_have_taken_the_next_image(sizes):
    found = list(batches([sized(id_, size) for id_, size in enumerate(sizes)], size_of))
    for batch, after in pairwise(found):
        larger = [*batch, after[0]]
        assert len(larger) > 8 or sum(task.ref.size_bytes for task in larger) > 2_000_000
