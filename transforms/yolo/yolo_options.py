"""Options of the format `yolo`."""

from typing import ClassVar, Literal

from recordmill.schemas.inputs.option import READ, Data, Images, redefine_option
from recordmill.transforms.annotated.format_options import FormatOptions


class YoloOptions(FormatOptions):
    """Options of the format `yolo`, see docs/formats.md."""

    data: Data = redefine_option(
        FormatOptions,
        "data",
        ...,
        "data.yaml of the data set, or its folder or .zip. Without data.yaml, class names are read from classes.txt.",
    )
    images: Images = redefine_option(
        FormatOptions, "images", text="Folder or .zip to which the paths in data.yaml are relative.", usual="its `path`"
    )
    task: Literal["detect", "segment", "pose", "obb"] | None = READ.opt(
        "Meaning of a line: a box, a polygon, a box with keypoints, or the four corners of an oriented box. If all "
        "lines have nine numbers, they may be polygons or oriented boxes: an error without `--task`. With `detect`, "
        "polygons are read as their boxes.",
        usual="pose with `kpt_shape`, otherwise inferred from the lines",
    )
    name: str = redefine_option(FormatOptions, "name", "yolo")
    endings: ClassVar[tuple[str, ...]] = (".txt",)
    most_folders: ClassVar[int | None] = 0  # --images is the folder that paths begin at, which data.yaml decides
    known_names: ClassVar[str] = r"data\.yaml|(.*/)?labels/.*\.txt"

    @classmethod
    def recognise_content(cls, head: bytes) -> bool:
        return False  # lines of numbers may be anything
