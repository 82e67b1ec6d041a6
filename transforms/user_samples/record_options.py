"""Options of `recordmill.beam.WriteDataset` and `recordmill.beam.Encode`."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.image_options import MASKS, ObjectOptions
from recordmill.schemas.inputs.option import WRITE, Images, redefine_option
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.layouts import LAYOUTS, CocoLayout
from recordmill.transforms.join.observed_labels import OPTIONAL_KINDS

PARTS = {
    "keypoints": (Part.KEYPOINTS,),
    "captions": (Part.CAPTIONS,),
    "stuff": (Part.SEMANTIC,),
    "panoptic": (Part.SEMANTIC, Part.PANOPTIC),
}
"""Parts of a record for each kind of annotation."""


def _part(what: str) -> Any:
    return WRITE.opt(f"Store {what} of Samples.", False)


class RecordOptions(ObjectOptions):
    """Options of the records of Samples."""

    images: Images = redefine_option(ObjectOptions, "images", ())
    name: str = redefine_option(ObjectOptions, "name", "samples")
    layout: Literal[CocoLayout, "classification"] = redefine_option(ObjectOptions, "layout")  # type: ignore[assignment]
    keypoints: bool = _part("the keypoints of objects")
    captions: bool = _part("the captions")
    stuff: bool = _part("a semantic mask of the stuff")
    panoptic: bool = _part("a semantic and a panoptic mask of the panoptic segments")

    @property
    def parts(self) -> tuple[Part, ...]:
        """Requested parts of a record."""
        asked = [part for name, parts in PARTS.items() if getattr(self, name) for part in parts]
        return tuple(dict.fromkeys((*asked, *MASKS[self.masks])))

    # Cached, because each Sample asks for it.
    @cached_property
    def is_image_class(self) -> bool:
        """True if each image has one class."""
        return any(feature.source == "image.class_index" for feature in LAYOUTS[self.layout].features)

    @cached_property
    def stored_kinds(self) -> frozenset[str]:
        """Options whose annotations are stored."""
        return frozenset(name for name in OPTIONAL_KINDS if getattr(self, name) not in (False, "none"))

    @cached_property
    def division(self) -> Division:
        return Division(self.shares)

    @property
    def table(self) -> FeatureTable:
        """Features of the records, with LVIS's lists on demand."""
        return self.layout_table.with_parts(self.parts)

    def _faults(self) -> Iterator[str]:
        for name in self.given("masks", *PARTS):
            parts = MASKS[self.masks] if name == "--masks" else PARTS[name[2:]]
            if not set(parts) & set(LAYOUTS[self.layout].parts):
                yield f"--layout {self.layout} has no feature for {name}: leave one of the two out"
        if self.stuff and self.panoptic:
            yield "--panoptic and --stuff both make the semantic mask: give one"
        yield from super()._faults()
