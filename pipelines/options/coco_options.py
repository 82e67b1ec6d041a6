"""What `recordmill coco` is asked to do."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.convert_options import ConvertOptions, RecipeValue, flag
from recordmill.schemas.coco import AnnotationKind, AnnotationSource
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.layouts import COCO_LAYOUTS, LAYOUTS

BOX_POLICIES = ("clip", "drop", "keep")
MASKS = {
    "none": (),
    "png": (Part.MASK_PNG,),
    "rle": (Part.MASK_RLE,),
    "both": (Part.MASK_PNG, Part.MASK_RLE),
}
ANNOTATIONS = ("instances", "keypoints", "captions", "stuff", "panoptic", "image_info")
"""Options that name annotation files, as `recordmill.schemas.coco.AnnotationKind` does."""


@dataclass(frozen=True, kw_only=True)
class CocoOptions(ConvertOptions):
    """What `recordmill coco` is asked to do. Names are those of the flags; see docs/cli.md.

    Attributes:
        panoptic_masks: folder or .zip of the PNGs of each panoptic file, in the same order.
        min_area: pixels².
    """

    instances: tuple[str, ...] = ()
    keypoints: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()
    stuff: tuple[str, ...] = ()
    panoptic: tuple[str, ...] = ()
    panoptic_masks: tuple[str, ...] = ()
    image_info: tuple[str, ...] = ()
    name: str = "coco"
    split: str = "train"
    layout: str = "detection"
    masks: str = "none"
    boxes: str = "clip"
    no_crowd: bool = False
    min_area: float = 0.0
    categories: tuple[str, ...] = ()
    no_list: bool = False

    @property
    def splits(self) -> tuple[str, ...]:
        return (self.split,)

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *(source.path for source in self.sources), *self.panoptic_masks)

    @property
    def sources(self) -> tuple[AnnotationSource, ...]:
        """The annotation files to read."""
        masks = dict(zip(self.panoptic, self.panoptic_masks, strict=True))
        return tuple(
            AnnotationSource(AnnotationKind(kind), path, masks[path] if kind == "panoptic" else "")
            for kind in ANNOTATIONS
            for path in getattr(self, kind)
        )

    @property
    def table(self) -> FeatureTable:
        """LVIS's lists join this where the input has them."""
        layout = LAYOUTS[self.layout]
        wanted = [part for parts in self._wanted_parts.values() for part in parts]
        return layout.with_parts(tuple(part for part in layout.parts if part in wanted))

    @property
    def _wanted_parts(self) -> dict[str, tuple[Part, ...]]:
        """What each flag that was given asks to be in a record; one of the parts will do."""
        parts = {
            "keypoints": (Part.KEYPOINTS,),
            "captions": (Part.CAPTIONS,),
            "stuff": (Part.SEMANTIC,),
            "panoptic": (Part.SEMANTIC, Part.PANOPTIC),
        }
        given = {option: wanted for option, wanted in parts.items() if getattr(self, option)}
        return given | ({"masks": MASKS[self.masks]} if self.masks != "none" else {})

    @property
    def box_policy(self) -> str:
        return self.boxes

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        return super().record_options | {
            "boxes": self.boxes,
            "categories": sorted(self.categories),
            "masks": self.masks,
            "min_area": self.min_area,
            "no_crowd": self.no_crowd,
            "no_list": self.no_list,
        }

    def _faults(self) -> Iterator[str]:
        if not any(getattr(self, kind) for kind in ANNOTATIONS):
            yield "--instances is missing (or another annotation file: --keypoints, --captions, --panoptic, …)"
        yield from self._given_twice(*ANNOTATIONS)
        choices = (("layout", COCO_LAYOUTS), ("masks", tuple(MASKS)), ("boxes", BOX_POLICIES))
        wrong = list(self._none_of(*choices))
        yield from wrong
        if not (math.isfinite(self.min_area) and self.min_area >= 0):
            yield f"--min-area {self.min_area} must be a number of pixels², 0 or more"
        if self.no_list and len(self.images) > 1:
            yield "--no-list takes all images to be in one folder, and --images names several"
        if self.no_list and any(path.lower().rstrip("/").endswith(".zip") for path in self.images):
            yield "--no-list is for folders; the members of a .zip are listed by its directory, at no cost"
        if not wrong:
            yield from self._kind_faults()
        yield from super()._faults()

    def _kind_faults(self) -> Iterator[str]:
        if len(self.panoptic) != len(self.panoptic_masks):
            yield (
                f"--panoptic is given {len(self.panoptic)} times and --panoptic-masks {len(self.panoptic_masks)}: each "
                "panoptic file needs the folder or .zip of its PNGs"
            )
        if self.panoptic and self.stuff:
            yield "--panoptic and --stuff both make the semantic mask: give one"
        if self.masks != "none" and not (self.instances or self.keypoints):
            yield f"--masks {self.masks} is of the objects of --instances or --keypoints, and neither is given"
        held = LAYOUTS[self.layout].parts
        for option, parts in self._wanted_parts.items():
            if not set(parts) & set(held):
                yield f"--layout {self.layout} has no feature for {flag(option)}: leave one of the two out"
