import itertools

import pytest

from recordmill.schemas.inputs.annotations import Annotation
from recordmill.schemas.inputs.images import ImageRef, ImageTask
from recordmill.transforms.join.drop_images import Candidate, find_copies, labels_digest
from tests.oracles.block_of_tasks import block_of_tasks


@pytest.mark.parametrize(
    ("images", "dropped"),
    [
        ([("train", "a", 1, "x")], {}),
        ([("train", "a", 1, "x"), ("val", "z", 2, "x")], {("train", 1): "'z' of val, which is kept"}),
        (
            [("val", "b", 1, "x"), ("val", "a", 2, "x"), ("train", "a", 3, "y")],
            {("val", 1): "'a' of val, which is kept", ("train", 3): "'a' of val, which is kept, with other labels"},
        ),
        ([("val", "a", 2, "x"), ("val", "a", 1, "x")], {("val", 2): "'a' of val, which is kept"}),  # of one file
    ],
)
def test_find_copies_in_any_order(images, dropped):
    candidates = [Candidate(split, name, id_, f"i/{name}", labels.encode()) for split, name, id_, labels in images]
    for order in itertools.permutations(candidates):
        found = {key: text.removeprefix("the same bytes as ") for key, text in find_copies(order)}
        assert found == dropped


def digest(*objects: tuple[int, float]) -> bytes:
    annotations = tuple(
        Annotation(id_, category, (x, 0.0, 9.0, 9.0), 81.0, False) for id_, (category, x) in enumerate(objects)
    )
    return labels_digest(block_of_tasks([ImageTask(1, "a", 1, 1, ImageRef("a", 1), "train", annotations)], ("train",)))


def test_labels_are_equal_in_any_order():
    assert digest((1, 2.0), (2, 3.0)) == digest((2, 3.0), (1, 2.0))
    assert len({digest(), digest((1, 2.0)), digest((2, 2.0)), digest((1, 3.0)), digest((1, 2.0), (1, 2.0))}) == 5
