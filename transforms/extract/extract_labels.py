"""The values of a record become an image and its label file."""

import posixpath
from collections.abc import Iterator
from typing import Any

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.extract.extract_files import ExtractedFile, path_below, text
from recordmill.transforms.extract.extract_rows import MAPS, Extracted, ImageEntry, RecordRows, RowExtractor
from recordmill.transforms.extract.label_format import ExtractedImage, ExtractedObject, LabelFormat, LabelRules
from recordmill.transforms.extract.write_imagefolder import IMAGEFOLDER
from recordmill.transforms.extract.write_labelme import LABELME
from recordmill.transforms.extract.write_voc import VOC
from recordmill.transforms.extract.write_yolo import YOLO
from recordmill.transforms.images.check_formats import without_exif
from recordmill.transforms.images.open_picture import kind_of, open_picture
from recordmill.transforms.images.transcode_picture import orientation_of

LABEL_FORMATS: dict[str, LabelFormat] = {"yolo": YOLO, "voc": VOC, "labelme": LABELME, "hf": IMAGEFOLDER}
"""By what `--as` calls them; `coco` is none of them."""
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Suffixes that all readers take for images."""
_TRAITS = ("difficult", "truncated", "view", "track_id", "corners")
_RENAMED = "image files that got a suffix that readers know"
_TURNED = "image files without their EXIF data, by which readers would turn the pixels, and not the boxes"


def label_rules(table: FeatureTable, labels: LabelMap) -> LabelRules:
    """Return what writers know of a data set."""
    return LabelRules(labels.categories, table.parts)


class LabelExtractor(RowExtractor):
    """Extracts records of one split as images with label files."""

    def __init__(self, table: FeatureTable, labels: LabelMap, split: str, format_: LabelFormat):
        super().__init__(table, labels, split)
        self._format, self._rules = format_, label_rules(table, labels)
        self._folder = format_.images.format(split=split)
        self._index = labels.index_by_id()

    def __call__(self, values: dict[str, Any]) -> Extracted:
        """
        Raises:
            UnusableRecordError: its image has no name that can be used, no id, or no size.
        """
        faults: list[tuple[str, str]] = []
        record, image = self.read_image(values, faults)
        data, name = values["image.encoded"], self._name(image.file_name)
        notes = {}
        suffix = posixpath.splitext(name)[1].lower()
        if suffix not in _SUFFIXES:
            name += ".jpg" if kind_of(data) == "jpeg" else ".png"
            notes[_RENAMED] = 1
        if _is_turned(data):
            data = without_exif(data)
            notes[_TURNED] = 1
        captions = tuple(row.caption for row in self._captions(values, image.id))
        class_name = text(values["image.class_name"], "the class") if "image.class_name" in values else None
        objects = tuple(self._objects(record, image, faults))
        maps = sum(source in values for source in (*MAPS, "panoptic.png"))
        tags = len(record.listed("image.tag_names"))
        extracted = ExtractedImage(image, self._split, name, objects, captions, class_name, maps, tags)
        labels = self._format.write(extracted, self._rules)
        files = [ExtractedFile(f"{self._folder}/{name}", data), *([labels.file] if labels.file else [])]
        lost, notes = dict(labels.lost), notes | {what: number for what, number in labels.notes.items() if number}
        rows = RecordRows(image, line=labels.line, objects=labels.objects, lost=lost, notes=notes)
        return Extracted(rows, tuple(files), faults)

    def _objects(
        self, record: RecordView, image: ImageEntry, faults: list[tuple[str, str]]
    ) -> Iterator[ExtractedObject]:
        """Yield the objects whose class is known."""
        difficult, truncated, views, tracks, corners = (record.listed(f"objects.{name}") for name in _TRAITS)
        for at, row in enumerate(self._instances(record, image, faults)):
            if category := self._categories.get(row.category_id):
                yield ExtractedObject(
                    row,
                    category,
                    self._index[category.id],
                    bool(difficult and difficult[at]),
                    bool(truncated and truncated[at]),
                    text(views[at], "a view") if views else "",
                    tracks[at] if tracks else -1,
                    tuple(corners[8 * at : 8 * at + 8]),
                )

    def _name(self, file_name: str) -> str:
        """Return the name below the split's folder. Names that begin with that folder, as of a data set that was read
        in this format, do not get it once more."""
        path = path_below(self._folder, file_name).removeprefix(f"{self._folder}/")
        return path.removeprefix(f"{self._folder}/")


def _is_turned(data: bytes) -> bool:
    try:
        with open_picture(data, kind_of(data) or "png") as image:
            return orientation_of(image) != 1
    except Exception:  # Pillow's decoders raise nearly anything on damaged bytes, which `_size` has reported
        return False
