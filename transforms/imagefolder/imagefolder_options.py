"""Options of the format `imagefolder`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from recordmill.schemas.inputs.image_options import bbox_format_option
from recordmill.schemas.inputs.option import READ, Data, Images, Names, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions


class ImagefolderOptions(FormatOptions):
    """Options of the format `imagefolder`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "Folder or .zip with metadata.csv, metadata.jsonl or metadata.parquet, in it or in folders of splits; or with "
        "Parquet files that hold images; or one such file.",
    )
    images: Images = redefine_option(
        FormatOptions,
        "images",
        text="Folder or .zip to which `file_name` is relative.",
        usual="the folder of the metadata file",
    )
    class_names: Names = READ.opt(
        "Class names, if `objects` has class numbers, from 0. One name, if objects have no class.",
        (),
        "NAME[,NAME…]",
    )
    bbox_format: Literal["xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"] | None = bbox_format_option(
        "`bbox`"
    )
    name: str = redefine_option(FormatOptions, "name", "imagefolder")
    endings: ClassVar[tuple[str, ...]] = (".csv", ".jsonl", ".parquet")
    most_folders: ClassVar[int | None] = 1
    known_names: ClassVar[str] = r"(.*/)?metadata\.(csv|jsonl|parquet)"

    @classmethod
    def recognise_columns(cls, columns: Mapping[str, Any]) -> str:
        import pyarrow as pa

        from recordmill.transforms.imagefolder.parse_metadata import has_objects

        holds_images = any(pa.types.is_large_binary(array.type) for array in columns.values())
        return "images and objects" if holds_images and has_objects(columns) else ""
