"""Options of `recordmill.beam.WriteDataset` and `recordmill.beam.Encode`."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import msgspec
from pydantic import PrivateAttr

from recordmill.schemas.features import OF_INPUT, FeatureTable, Part
from recordmill.schemas.inputs.fields import NONE_SELECTED, Fields, FieldSelection
from recordmill.schemas.inputs.image_options import MASKS, AnnotatedOptions, ObjectOptions, StoredImageOptions
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.option import WRITE, Images, redefine_option
from recordmill.schemas.inputs.splits import Division, SplitShares
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

    fields: Fields = redefine_option(
        ObjectOptions,
        "fields",
        text="Open fields that are stored, of those of Samples and of their objects, by path. A dict has the kind of "
        "each, `int`, `float` or `text`, or None. `none` stores none.",
        usual="all",
    )

    _source: StoredImageOptions | None = PrivateAttr(None)
    _source_splits: tuple[str, ...] = PrivateAttr(())
    _observed_kinds: frozenset[str] = PrivateAttr(frozenset())
    _follows_samples: bool = PrivateAttr(False)
    _kinds_of_fields: Sequence[tuple[FieldSelection, FieldSelection]] = PrivateAttr(())

    @property
    def follows_samples(self) -> bool:
        """True if the Samples decide the layout: `detection` or `classification`."""
        return self._follows_samples

    def following_samples(self) -> "RecordOptions":
        """Return the options with a layout that the Samples decide: `layout`, or the other one."""
        options = self._copy({})
        options._follows_samples = True
        return options

    def of_layout(self, layout: str) -> "RecordOptions":
        """Return the options with the layout that the Samples decided. Another layout than the default stores no
        optional annotations."""
        if not self._follows_samples:
            return self
        changes = {"layout": layout, "masks": "none", **dict.fromkeys(PARTS, False)} if layout != self.layout else {}
        options = self._copy(changes)
        options._follows_samples = False
        if changes:
            options._observed_kinds = frozenset()
        return options

    def storing_all(self) -> "RecordOptions":
        """Return the options that store all annotations of Samples, as far as the layout does."""
        return self._copy({"masks": "both", **dict.fromkeys(PARTS, True)})

    def _copy(self, changes: dict[str, Any]) -> "RecordOptions":
        options = self.model_copy(update=changes)
        for cached in ("division", "stored_kinds", "is_image_class"):
            options.__dict__.pop(cached, None)
        return options

    def with_source(
        self,
        source: StoredImageOptions,
        splits: tuple[str, ...],
        observed_kinds: frozenset[str] = frozenset(),
        kinds_of_fields: Sequence[tuple[FieldSelection, FieldSelection]] = (),
    ) -> "RecordOptions":
        """Return the options with what is known of the data set that Samples are read from.

        Args:
            source: Options of reading.
            splits: Splits that the data set names, which are written; empty if `split` has the splits.
            observed_kinds: Names of options whose annotations are stored if Samples have them.
            kinds_of_fields: Fields of images and objects of several sources, with the kinds that their options name.
        """
        options = self._copy({})
        options._source, options._source_splits, options._observed_kinds = source, splits, observed_kinds
        options._kinds_of_fields = kinds_of_fields
        return options

    def selected_fields(self, image_paths: Iterable[str] = ()) -> tuple[FieldSelection, FieldSelection]:
        """Return the stored fields: without the option all, with the kinds that the options of reading name."""
        if self.fields:
            return super().selected_fields(image_paths)
        read = self._source.selected_fields() if isinstance(self._source, ObjectOptions) else NONE_SELECTED
        by_axis = zip(*(self._kinds_of_fields or [read]), strict=True)
        image_fields, object_fields = (
            FieldSelection({path: kind for part in reversed(parts) for path, kind in part.kinds.items()}, True)
            for parts in by_axis
        )
        return image_fields, object_fields

    @property
    def splits(self) -> tuple[str, ...]:
        return self._source_splits or super().splits

    @property
    def parts(self) -> tuple[Part, ...]:
        """Requested parts of a record, and those that the data set has."""
        asked = [part for name, parts in PARTS.items() if getattr(self, name) for part in parts]
        source_parts = [part for part in self._source.table.parts if part in OF_INPUT] if self._source else []
        return tuple(dict.fromkeys((*asked, *MASKS[self.masks], *source_parts)))

    @property
    def min_area(self) -> float:
        """Minimum area, in square pixels, of objects whose boxes are fractions."""
        return self._source.min_area if isinstance(self._source, AnnotatedOptions) else 0.0

    @property
    def allow_empty(self) -> bool:
        """True if Samples without any label are background, by the option of reading."""
        return bool(getattr(self._source, "allow_empty", False))

    @property
    def image_rules(self) -> ImageRules:
        rules = super().image_rules
        return msgspec.structs.replace(rules, upright=self._source.image_rules.upright) if self._source else rules

    # Cached, because each Sample asks for it.
    @cached_property
    def is_image_class(self) -> bool:
        """True if each image has one class."""
        return any(feature.source == "image.class_index" for feature in LAYOUTS[self.layout].features)

    @cached_property
    def stored_kinds(self) -> frozenset[str]:
        """Options whose annotations are stored."""
        given = {name for name in OPTIONAL_KINDS if getattr(self, name) not in (False, "none")}
        return self._observed_kinds | given

    @cached_property
    def division(self) -> Division:
        """Splits, and the assignment of Samples without a split. There is none if the data set names several splits."""
        names = self._source_splits
        return Division(SplitShares(tuple((name, Fraction(1, len(names))) for name in names)) if names else self.shares)

    def observed_parts(self, kinds: Iterable[str]) -> tuple[Part, ...]:
        """Return the parts of a record that are stored because Samples have annotations of these kinds."""
        return tuple(part for kind in self._observed_kinds & {*kinds} for part in PARTS[kind])

    @property
    def needs_splits(self) -> bool:
        """True if each Sample must have its split."""
        return len(self._source_splits) > 1

    @property
    def table(self) -> FeatureTable:
        """Features of the records, with LVIS's lists on demand."""
        return self.layout_table.with_parts(self.parts)

    def _faults(self) -> Iterator[str]:
        for name in self.given("masks", *PARTS):
            parts = MASKS[self.masks] if name == "--masks" else PARTS[name[2:]]
            if not set(parts) & set(LAYOUTS[self.layout].parts):
                yield f"--layout {self.layout} has no feature for {name}. Leave one of the two out"
        if self.stuff and self.panoptic:
            yield "--panoptic and --stuff both make the semantic mask. Give one"
        yield from super()._faults()
