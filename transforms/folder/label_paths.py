"""Image files whose paths give their class become image rows."""

from collections.abc import Iterable, Sequence

import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.image_labels import PathLabels, is_image_name
from recordmill.schemas.images import ImageRef
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.splits import Division, name_id
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.list_images import file_block


def label_paths(
    files: Iterable[tuple[str, ImageRef]],
    rule: PathLabels,
    division: Division,
    splits: Sequence[str],
    facts: FactsBuilder,
) -> Block:
    """Image rows of the files that are images, with the columns of their files.

    Args:
        files: by their `recordmill.schemas.names.name_key`.
        splits: of the job; the column `split` is an index of them.
        facts: gets files that are no images, and images without a class.
    """
    labelled: list[tuple[str, ImageRef]] = []
    classes: list[str] = []
    for name, file in files:
        if not is_image_name(name):
            facts.add_unlisted(name)
        elif fault := path_fault(name, rule, division):
            facts.reject(division.split_of(name), Rejected("image", name_id(name), *fault))
        else:
            labelled.append((name, file))
            classes.append(rule.class_of(name))
    return named_rows(file_block(labelled)).having(
        split=np.array([splits.index(division.split_of(name)) for name, _ in labelled], np.int64),
        class_name=ragged_texts(classes),
    )


def named_rows(block: Block) -> Block:
    """Rows of images whose ids come from their names, and whose sizes are not known."""
    ids = np.array(list(map(name_id, block.file_name.texts())), np.int64)
    return block.having(image_id=ids, image_size_px=np.zeros((len(ids), 2), np.int64))


def path_fault(name: str, rule: PathLabels, division: Division) -> tuple[Reason, str] | None:
    """Why an image cannot be used, by its name; None if it can."""
    if fault := name_fault(name):
        return Reason.UNSAFE_FILE_NAME, f"{name!r} {fault}"
    if not rule.class_of(name):
        missing = "is in no folder" if rule.separator is None else f"has no {rule.separator!r} after its class"
        return Reason.NO_CLASS, f"{name!r} {missing}"
    if fault := division.fault(name):
        return Reason.NO_GROUP, f"{name!r} {fault}"
    return None
