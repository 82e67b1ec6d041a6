"""What blocks of annotation files say, in whatever order they come, becomes what each file says of each image."""

from itertools import permutations

from recordmill.schemas.annotations import Annotation, Caption, ImageLabels, ImageRow
from recordmill.schemas.coco import AnnotationKind, BlockRows, FileAnnotations
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco.merge_blocks import merge_blocks

OBJECTS, CAPTIONS = AnnotationKind.INSTANCES, AnnotationKind.CAPTIONS
ONE, AGAIN, TWO = ImageRow(1, "a.jpg", 4, 3), ImageRow(1, "b.jpg", 4, 3), ImageRow(2, "c.jpg")
FIRST, OTHER = ImageLabels(neg_category_ids=(5,)), ImageLabels(neg_category_ids=(6,))
BOXES = tuple(Annotation(id_, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False) for id_ in range(4))
TEXTS = tuple(Caption(id_, str(id_)) for id_ in range(3))
BAD = tuple(Rejected("annotation", 9, Reason.MALFORMED_BOX, str(number), 2) for number in range(2))


def test_rows_of_an_image_come_together_in_the_order_of_their_file_and_images_in_that_of_their_ids():
    blocks = (
        BlockRows(0, "a.json", OBJECTS, 0, (TWO, ONE), (OTHER, FIRST)),
        BlockRows(0, "a.json", OBJECTS, 1, (AGAIN,), (OTHER,), (1, 2), BOXES[:2], rejected=BAD[:1]),
        BlockRows(0, "a.json", OBJECTS, 2, image_ids=(2, 1), annotations=BOXES[2:], rejected=BAD[1:]),
        BlockRows(0, "a.json", CAPTIONS, 1, image_ids=(1, -7), labels=ImageLabels(captions=TEXTS[:2])),
        BlockRows(0, "a.json", CAPTIONS, 2, image_ids=(1,), labels=ImageLabels(captions=TEXTS[2:])),
    )
    captions = ImageLabels(captions=(TEXTS[0], TEXTS[2]))
    expected = [
        (-7, [FileAnnotations(-7, "a.json", CAPTIONS, (), labels=ImageLabels(captions=TEXTS[1:2]))]),
        (
            1,
            [
                FileAnnotations(1, "a.json", CAPTIONS, (), labels=captions),
                FileAnnotations(1, "a.json", OBJECTS, (ONE, AGAIN), (BOXES[0], BOXES[3]), FIRST),
            ],
        ),
        (2, [FileAnnotations(2, "a.json", OBJECTS, (TWO,), (BOXES[1], BOXES[2]), OTHER, BAD)]),
    ]
    assert all(merge_blocks(order) == expected for order in permutations(blocks))
