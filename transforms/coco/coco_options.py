"""Options of the format `coco`."""

from collections.abc import Iterator
from typing import Any, Literal

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import OF_INPUT, FeatureTable, Part
from recordmill.schemas.inputs.coco import (
    STORED_OF_IMAGES,
    STORED_OF_OBJECTS,
    AnnotationKind,
    AnnotationSource,
    BoxFormat,
)
from recordmill.schemas.inputs.encoders import TextForm
from recordmill.schemas.inputs.image_options import MASKS, AnnotatedOptions, bbox_format_option, match_option
from recordmill.schemas.inputs.option import (
    ARGUMENT,
    COMMON,
    OF_FORMAT,
    RARE,
    READ,
    TEXTS,
    Data,
    Files,
    Images,
    Masks,
    flag,
    redefine_option,
)
from recordmill.schemas.inputs.options import RecipeValue, parse_pairs
from recordmill.schemas.inputs.text_options import TextChoice, TextOptions
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import Match, NameSources

CAPTIONS = "captions"  # column name of the captions' encoder
ANNOTATIONS = ("instances", "keypoints", "captions", "stuff", "panoptic", "image_info")


def _file_option(text: str, also: str = "", rank: str = OF_FORMAT) -> Any:
    return READ.opt(text, (), "FILE", also=also, rank=rank)


class CocoOptions(TextOptions, AnnotatedOptions):
    """Options of the format `coco`, see docs/cli.md."""

    images: Images = redefine_option(AnnotatedOptions, "images", (), usual="those of DATA")
    data: Data | None = ARGUMENT.opt(
        "Folder or .zip that a tool exported, instead of `--images` and annotation files. The file and folder names "
        "of Roboflow, CVAT, FiftyOne, Label Studio and COCO are recognised, see "
        "[formats.md](formats.md#coco-exports). All splits are written.",
        metavar="DATA",
    )
    instances: Files = _file_option(
        "Objects: boxes, areas, crowd flags, segmentations; repeatable, like all annotation files. All files are "
        "joined on image id. LVIS files are also read.",
        "annotations ann-file",
        COMMON,
    )
    keypoints: Files = _file_option(
        "Objects with keypoints, joined with `--instances` on annotation id. Names and number of the keypoints come "
        "from the category; if it names none, the number comes from its rows (`keypoint_1`, …). A row with the id and "
        "category of an `--instances` row is the same object.",
        rank=COMMON,
    )
    captions: Files = _file_option("Captions.", rank=COMMON)
    panoptic: Files = _file_option("Panoptic segments; needs `--panoptic-masks`.")
    stuff: Files = _file_option(
        "Regions of stuff, for a semantic mask. To read them as boxes and masks of objects, pass the file to "
        "`--instances`."
    )
    image_info: Files = _file_option("Images without annotations, for example of test sets.")
    panoptic_masks: Masks = READ.opt(
        "Folder or .zip of the PNGs of each `--panoptic` file. Give them in the order of `--panoptic`.", (), "DIR|ZIP"
    )
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None = bbox_format_option(
        "`bbox`, in `--instances` and `--keypoints`", ", which the file must state"
    )
    no_list: bool = READ.opt(
        "Do not list `--images`: assume that every file exists and has 133 kB. For one folder. It saves minutes if a "
        "folder in a bucket has millions of objects. Shards then have equal numbers of images instead of bytes. "
        "Missing files are found only when they are read, even if all are missing.",
        False,
        rank=RARE,
    )
    match: Match = match_option()
    name: str = redefine_option(AnnotatedOptions, "name", "coco")
    masks: Literal["none", "png", "rle", "both"] = redefine_option(
        AnnotatedOptions, "masks", needs="instances keypoints data"
    )
    caption_text: TextChoice = TEXTS.opt(
        "How to encode captions as numbers. The captions themselves are also stored. All captions of an image are one "
        "text. `counts`: the count of each term. `tfidf`: these counts weighted by tf-idf. `tokens`: ids of the "
        "tokens. See [text.md](text.md).",
        "raw",
        needs="captions data",
    )

    @property
    def name_sources(self) -> NameSources:
        rows = tuple(source.path for source in self.sources)
        images_option = "--images" if "data" in self.model_fields_set else "DATA"  # of an export, or of files
        return NameSources(self.images, rows, self.match, not self.no_list, images_option, 1 if self.no_list else None)

    @property
    def sources(self) -> tuple[AnnotationSource, ...]:
        """Annotation files to read."""
        masks = dict(zip(self.panoptic, self.panoptic_masks, strict=True))
        format_ = BoxFormat(self.bbox_format) if self.bbox_format else None
        return tuple(
            AnnotationSource(AnnotationKind(kind), path, masks[path] if kind == "panoptic" else "", format_)
            for kind in ANNOTATIONS
            for path in getattr(self, kind)
        )

    @property
    def held_files(self) -> tuple[str, ...]:
        return tuple(source.path for source in self.sources)

    @property
    def held_per_byte(self) -> tuple[float, float]:
        # The maximum is measured: benchmarks/RESULTS.md, Metadata. The minimum was 0.13 with unread segmentations.
        return (0.4, 2.0) if self.masks != "none" else (0.1, 1.3)

    @property
    def table(self) -> FeatureTable:
        """Requested features of records. LVIS's lists are added once the files have been read, if a file has them."""
        layout = self.layout_table
        wanted = [part for parts in self._wanted_parts.values() for part in parts]
        return layout.with_parts(tuple(part for part in layout.parts if part in wanted))

    @property
    def layout_table(self) -> FeatureTable:
        """All features of the layout, under the names of `--text-names`."""
        return self.stored(self.usual_table)

    @property
    def usual_table(self) -> FeatureTable:
        return super().usual_table.renamed(self._text_names)

    @property
    def _text_names(self) -> dict[str, str]:
        names = self.text_feature_names(self.text_form, CAPTIONS)
        return {f"{CAPTIONS}.{key}": name for key, name in names.items()}

    @property
    def text_form(self) -> TextForm:
        return TextForm(self.caption_text)

    @property
    def _wanted_parts(self) -> dict[str, tuple[Part, ...]]:
        """Parts of a record that each option requests. The layout must have one part of each option."""
        encoded = Part.CAPTION_TOKENS if self.text_form is TextForm.TOKENS else Part.CAPTION_TERMS
        parts = {
            "keypoints": (Part.KEYPOINTS,),
            "captions": (Part.CAPTIONS,),
            "stuff": (Part.SEMANTIC,),
            "panoptic": (Part.SEMANTIC, Part.PANOPTIC),
            "masks": MASKS[self.masks],
            "caption_text": (encoded,),
            "depth_images": (Part.DEPTH,),
        }
        return {name: wanted for name, wanted in parts.items() if self.given(name)}

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        recorded = super().record_options
        if self.bbox_format == BoxFormat.XYWH.value:  # the records are those of the default
            del recorded["bbox_format"]
        if len(self.split) == 1:  # the recipe has the name of the split
            recorded.pop("split", None)
        return recorded | ({"categories": sorted(self.categories)} if self.categories else {})

    def _check_keys(self) -> None:
        key_by_source = {feature.source: feature.name for feature in self.usual_table.features}
        changed_names = {*parse_pairs(self.rename).values(), *self.kinds}
        stored = {feature.source for feature in self.table.features}
        for feature in self.layout_table.features:
            if feature.name in changed_names and feature.source not in stored and feature.part not in OF_INPUT:
                key = key_by_source[feature.source]
                raise ConfigError(f"--{'rename' if key in parse_pairs(self.rename) else 'dtype'}: no record has {key}")

    def _faults(self) -> Iterator[str]:
        files = self.given(*ANNOTATIONS, "panoptic_masks")
        if self.data and files:
            yield f"DATA has the annotation files, and {' and '.join(files)} names them. Leave one of the two out"
        if not self.data and not self.images:
            yield "DATA is missing. Give the folder or .zip of the images"
        if not self.data and not any(getattr(self, kind) for kind in ANNOTATIONS):
            yield "--instances is missing (or another annotation file: --keypoints, --captions, --panoptic, …)"
        if self.no_list and len(self.images) > 1:
            yield "--no-list assumes that all images are in one folder, and --images names several"
        if self.no_list and any(path.lower().rstrip("/").endswith(".zip") for path in self.images):
            yield "--no-list is for folders; the directory of a .zip lists its members at no cost"
        if self.no_list and self.match != "path":
            yield f"--match {self.match} looks for names among those of the files, and --no-list does not list them"
        yield from self._caption_faults()
        for what, selection, stored in zip(
            ("image.", ""), self.selected_fields(), (STORED_OF_IMAGES, STORED_OF_OBJECTS), strict=True
        ):
            for path in sorted(selection.kinds.keys() & stored):
                yield f"--fields {what}{path}: no open field; an option, or each record, stores {path}. Leave it out"
        if len(self.panoptic) != len(self.panoptic_masks):
            yield (
                f"--panoptic is given {len(self.panoptic)} times and --panoptic-masks {len(self.panoptic_masks)}: each "
                "panoptic file needs the folder or .zip of its PNGs"
            )
        if self.stratify and not (self.instances or self.keypoints or self.data):
            yield "--stratify divides the categories of objects. Give --instances or --keypoints"
        if self.panoptic and self.stuff:
            yield "--panoptic and --stuff both make the semantic mask. Give one"
        for name, parts in self._wanted_parts.items():
            if not set(parts) & set(LAYOUTS[self.layout].parts):
                yield f"--layout {self.layout} has no feature for {flag(name)}. Leave one of the two out"
        yield from super()._faults()

    def _caption_faults(self) -> Iterator[str]:
        form = self.text_form
        yield from self._text_faults(form, "--caption-text")
        if form is TextForm.RAW:
            return
        try:
            table = self.layout_table
        except ValueError as fault:
            yield f"--text-names {fault}"
            return
        names = {feature.name for feature in table.features if feature.source.startswith(f"{CAPTIONS}.")}
        own = names - {feature.name for feature in LAYOUTS[self.layout].features}
        for name in sorted(name for name in own if name.startswith(tuple(f"{group}/" for group in table.groups))):
            yield f"--text-names {name}: in layout {self.layout} that is a list of one value for each caption"
