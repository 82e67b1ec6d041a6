"""What `recordmill coco` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from recordmill.pipelines.options.convert_options import RecipeValue
from recordmill.pipelines.options.option import LEAVE_OUT, READ, TEXTS, WRITE, Kind, flag, option, redefined, reworded
from recordmill.pipelines.options.picture_options import DividedOptions, PictureOptions
from recordmill.pipelines.options.text_options import TEXT_FORMS, TextOptions
from recordmill.schemas.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.encoders import TextForm
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.layouts import COCO_LAYOUTS, LAYOUTS
from recordmill.schemas.names import MATCHES, NameSources

MASKS = {"none": (), "png": (Part.MASK_PNG,), "rle": (Part.MASK_RLE,), "both": (Part.MASK_PNG, Part.MASK_RLE)}
_OF_TEXT = {
    TextForm.RAW: (),
    TextForm.COUNTS: (Part.CAPTION_TERMS,),
    TextForm.TFIDF: (Part.CAPTION_TERMS,),
    TextForm.TOKENS: (Part.CAPTION_TOKENS,),
}
CAPTIONS = "captions"
"""What the encoder of captions is called."""
ANNOTATIONS = ("instances", "keypoints", "captions", "stuff", "panoptic", "image_info")
"""Options that name annotation files, as `recordmill.schemas.coco.AnnotationKind` does."""


def _file(help: str, docs: str = "") -> Any:
    return option(Kind.PATHS, READ, (), metavar="FILE").says(help, docs)


@dataclass(frozen=True, kw_only=True)
class CocoOptions(TextOptions, PictureOptions, DividedOptions):
    """What `recordmill coco` is asked to do. Names are those of the flags; see docs/cli.md."""

    images: tuple[str, ...] = reworded(PictureOptions, "images").says(
        "folder or .zip of images, local or gs://; repeatable; a file_name may hold sub-folders",
        "folder of images, or a .zip as COCO ships it, which is read in place; repeatable; a `file_name` may hold "
        "sub-folders. A name that two folders have is an error",
    )
    instances: tuple[str, ...] = _file(
        "objects: boxes, segmentations; repeatable, as every file below; all are joined on image id",
        "objects: boxes, areas, crowd flags, segmentations. Repeatable, as every annotation file. LVIS files are read, "
        "too",
    )
    keypoints: tuple[str, ...] = _file(
        "objects with keypoints; joined with --instances on annotation id",
        "objects with keypoints, of whatever skeleton: names and number come from the category, or, where it names "
        "none, the number from its rows (`keypoint_1`, …). A row whose id an `--instances` row of the same category "
        "has is the same object",
    )
    captions: tuple[str, ...] = _file("captions")
    panoptic: tuple[str, ...] = _file(
        "panoptic segments; needs --panoptic-masks", "panoptic segments; needs `--panoptic-masks`"
    )
    stuff: tuple[str, ...] = _file(
        "regions of stuff, for a semantic mask",
        "regions of stuff, painted into a semantic mask. (As boxes and masks of objects, give the file to "
        "`--instances`)",
    )
    image_info: tuple[str, ...] = _file("images without annotations, as of test sets")
    panoptic_masks: tuple[str, ...] = option(Kind.PATHS, READ, (), metavar="DIR|ZIP", may_repeat=True).says(
        "the PNGs of --panoptic",
        "the PNGs of each `--panoptic` file, in the same order: in a folder, or in a .zip as COCO ships it",
    )
    bbox_format: str | None = option(
        Kind.CHOICE,
        READ,
        None,
        choices=tuple(format_.value for format_ in BoxFormat),
        usual="xywh, if it looks like that",
    ).says(
        "what the numbers of a bbox are, in --instances and --keypoints",
        "what the four numbers of a `bbox` are in `--instances` and `--keypoints`: left, top, width, height, or "
        "left, top, right, bottom; in pixels, or (`rel-`) as fractions of the image's width and height, which the "
        "file has to say. Without it they are taken for `xywh`, and a file that does not look like that is "
        "refused; with it, whatever they look like",
    )
    no_list: bool = option(Kind.SWITCH, READ, False).says(
        "do not list --images: take every file to be there, and of the usual size",
        "do not list `--images`, one folder: every file is taken to be there, and of 133 kB. Saves minutes where a "
        "bucket's folder has millions of objects; shards are then of equal numbers of images rather than bytes, "
        "and missing files show when they are read, even if all are missing",
    )
    match: str = option(Kind.CHOICE, READ, "path", choices=MATCHES).says(
        "find a file by the whole file_name, by the longest end of it, or by its last part",
        "how a `file_name` finds its file: `path`, it is the path below `--images`; `suffix`, the file whose path "
        "has the longest end in common with it, at least the file's name; `name`, the file that is called so, in "
        "whatever folder. With the last two a `file_name` may be an absolute or a Windows path, and the record has "
        "the file's path below `--images` in its place. What could be either of two files is an error",
    )
    name: str = redefined(PictureOptions, "name", "coco")
    split: tuple[tuple[str, Fraction], ...] = redefined(
        PictureOptions,
        "split",
        docs=(
            "one split, which this is, and each is added to the folder by a run of its own; or several, into which the "
            "images are divided: `train=0.8,val=0.2`. Shares are decimals or fractions (`1/3`) and sum to 1"
        ),
    )
    layout: str = redefined(PictureOptions, "layout", "detection", choices=COCO_LAYOUTS)
    examples_per_shard: int | None = redefined(
        PictureOptions, "examples_per_shard", None, usual="of layout keras: 4096"
    )
    masks: str = option(Kind.CHOICE, WRITE, "none", choices=tuple(MASKS)).says(
        "masks of objects, as PNG, as COCO's run lengths, or both",
        "masks of objects, as 8-bit PNG of the full image with values 0 and 1, as COCO's compressed run lengths, "
        "or both. Without it, segmentations are not looked at",
    )
    boxes: str = option(Kind.CHOICE, LEAVE_OUT, "clip", choices=("clip", "drop", "keep")).says(
        "what becomes of a box that crosses its image's edge",
        "a box that crosses its image's edge is cut there, or left out, or kept as it is, beyond 0..1",
    )
    no_crowd: bool = option(Kind.SWITCH, LEAVE_OUT, False).says(
        "leave out annotations with iscrowd 1", "leave out annotations with `iscrowd` 1"
    )
    min_area: float = option(
        Kind.NUMBER,
        LEAVE_OUT,
        0.0,
        metavar="PX2",
        least=0,
        measure="a number of pixels²",
        pattern="[0-9]{0,15}[.]?[0-9]{1,15}([eE][+-]?[0-9]{1,2})?",
    ).says("leave out smaller annotations", "leave out annotations whose `area` is smaller")
    categories: tuple[str, ...] = option(
        Kind.NAMES, LEAVE_OUT, (), metavar="NAME[,NAME…]", usual="all", pattern=".*[^ ,].*"
    ).says(
        "keep only annotations of these categories; repeatable",
        "keep only annotations of these categories; images without any of them stay",
    )

    caption_text: str = option(Kind.CHOICE, TEXTS, "raw", choices=TEXT_FORMS).says(
        "what becomes of captions besides themselves",
        "what the captions of an image become besides themselves, all of them as one text: `counts` of its terms, "
        "these as `tfidf`, or its `tokens` as ids; see [text.md](text.md)",
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *(source.path for source in self.sources), *self.panoptic_masks)

    @property
    def name_sources(self) -> NameSources:
        rows = tuple(source.path for source in self.sources)
        return NameSources(self.images, rows, self.match, not self.no_list)

    @property
    def sources(self) -> tuple[AnnotationSource, ...]:
        """The annotation files to read."""
        masks = dict(zip(self.panoptic, self.panoptic_masks, strict=True))
        format_ = BoxFormat(self.bbox_format) if self.bbox_format else None
        return tuple(
            AnnotationSource(AnnotationKind(kind), path, masks[path] if kind == "panoptic" else "", format_)
            for kind in ANNOTATIONS
            for path in getattr(self, kind)
        )

    @property
    def table(self) -> FeatureTable:
        """LVIS's lists join this where the input has them."""
        layout = self.layout_table
        wanted = [part for parts in self._wanted_parts.values() for part in parts]
        return layout.with_parts(tuple(part for part in layout.parts if part in wanted))

    @property
    def layout_table(self) -> FeatureTable:
        """All that the layout has room for, by the names that were asked for."""
        names = self.text_feature_names(self.text_form, CAPTIONS)
        return LAYOUTS[self.layout].renamed({f"{CAPTIONS}.{key}": name for key, name in names.items()})

    @property
    def text_form(self) -> TextForm:
        return TextForm(self.caption_text)

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
        given |= {"masks": MASKS[self.masks]} if self.masks != "none" else {}
        return given | ({"caption_text": _OF_TEXT[self.text_form]} if self.text_form is not TextForm.RAW else {})

    @property
    def box_policy(self) -> str:
        return self.boxes

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        of_text = {"caption_text": self.caption_text, **self.text_record_options()}
        return (super().record_options | (of_text if self.text_form is not TextForm.RAW else {})) | {
            "bbox_format": self.bbox_format or BoxFormat.XYWH.value,
            "boxes": self.boxes,
            "categories": sorted(self.categories),
            **self._values("masks", "match", "min_area", "no_crowd", "no_list"),
            **(self.division_options if len(self.split) > 1 else {}),
        }

    def _faults(self) -> Iterator[str]:
        if not any(getattr(self, kind) for kind in ANNOTATIONS):
            yield "--instances is missing (or another annotation file: --keypoints, --captions, --panoptic, …)"
        if self.no_list and len(self.images) > 1:
            yield "--no-list takes all images to be in one folder, and --images names several"
        if self.no_list and any(path.lower().rstrip("/").endswith(".zip") for path in self.images):
            yield "--no-list is for folders; the members of a .zip are listed by its directory, at no cost"
        if self.no_list and self.match != "path":
            yield f"--match {self.match} looks for names among those of the files, and --no-list does not list them"
        if self.caption_text in TEXT_FORMS:
            yield from self._caption_faults()
        if self.layout in COCO_LAYOUTS and self.masks in MASKS and self.caption_text in TEXT_FORMS:
            yield from self._kind_faults()
        yield from super()._faults()

    def _caption_faults(self) -> Iterator[str]:
        form = self.text_form
        yield from self._text_faults({form}, "--caption-text")
        if form is TextForm.RAW:
            return
        if not self.captions:
            yield f"--caption-text {form.value} is of the captions of --captions, and none is given"
        if self.layout in COCO_LAYOUTS:
            try:
                table = self.layout_table
            except ValueError as fault:
                yield f"--text-names {fault}"
                return
            names = {feature.name for feature in table.features if feature.source.startswith(f"{CAPTIONS}.")}
            own = names - {feature.name for feature in LAYOUTS[self.layout].features}
            for name in sorted(name for name in own if name.startswith(tuple(f"{group}/" for group in table.groups))):
                yield f"--text-names {name}: in layout {self.layout} that is a list of one value for each caption"

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
        for name, parts in self._wanted_parts.items():
            if not set(parts) & set(held):
                yield f"--layout {self.layout} has no feature for {flag(name)}: leave one of the two out"
