"""What all conversions of pictures are asked to do."""

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.convert_options import ConvertOptions, RecipeValue
from recordmill.pipelines.options.option import LEAVE_OUT, PICTURES, READ, RUN, WRITE, Kind, option
from recordmill.schemas.images import PictureRules
from recordmill.schemas.names import NameSources
from recordmill.schemas.splits import Division, group_fault


@dataclass(frozen=True, kw_only=True)
class ImageOptions(ConvertOptions):
    """What any conversion of image files is asked to do. Names are those of the flags; see docs/cli.md."""

    images: tuple[str, ...] = option(Kind.PATHS, READ, metavar="DIR|ZIP").says(
        "folder or .zip of images, local or gs://, and all folders in it; repeatable"
    )
    workers: int | None = option(
        Kind.INTEGER, RUN, None, metavar="N", least=1, largest=256, usual="one a core, 64 for buckets"
    ).says(
        "threads that fetch and check images, per Beam worker",
        "threads that fetch and check images, per Beam worker. A local job is one; with 1,000 images or more it "
        "shares them out among processes that write a shard each, as many as there are cores, 8 at the most; with "
        "1 there are none, and without it they have two a core",
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.images, *super().paths)

    @property
    @abstractmethod
    def name_sources(self) -> NameSources:
        """Where the names of images and of files come from."""


@dataclass(frozen=True, kw_only=True)
class DividedOptions(ImageOptions):
    """What any conversion is asked to do that divides images by their names."""

    group_from: str | None = option(Kind.TEXT, WRITE, None, metavar="REGEX", pattern=".*[^ ].*").says(
        "images whose names have the same here are never in two splits",
        "a regular expression, searched in each image's path below `--images`. Images in which it finds the same "
        "(its first group, or else all of it) belong together, as those of a patient or a video do, and are never "
        "in two splits: `--group-from 'patient[0-9]+'`, `--group-from '^(.*)_frame'`",
    )

    groups: str | None = option(Kind.PATH, WRITE, None, metavar="FILE").says(
        "images that are never in two splits: duplicates.jsonl, or CSV of file_name and group",
        "a list of images that belong together, and are never in two splits: the `duplicates.jsonl` of a data set "
        "of the same images, or CSV with the columns `file_name` and `group` (a patient, a video, a place)",
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.group_files)

    @property
    def keeps_groups(self) -> bool:
        return bool(self.group_from or self.groups)

    @property
    def group_files(self) -> tuple[str, ...]:
        """The file of --groups, if it is given."""
        return (self.groups,) if self.groups else ()

    @property
    def division(self) -> Division:
        """Without the groups that are in a file."""
        return Division(self.shares, unicodedata.normalize("NFC", self.group_from or ""))  # as names are

    @property
    def division_options(self) -> dict[str, RecipeValue]:
        return super().division_options | ({"group_from": self.group_from} if self.group_from else {})

    def _faults(self) -> Iterator[str]:
        if self.group_from is not None and (fault := group_fault(self.group_from)):
            yield f"--group-from {self.group_from} {fault}"
        if self.group_from is not None and len(self.split) < 2:
            yield "--group-from keeps groups of images in one split, but --split does not divide them"
        if self.groups and len(self.split) < 2:
            yield "--groups keeps groups of images in one split, but --split does not divide them"
        if self.groups and self.group_from is not None:
            yield "--groups and --group-from both say which images belong together: give one"
        yield from super()._faults()


@dataclass(frozen=True, kw_only=True)
class PictureOptions(ImageOptions):
    """What any conversion is asked to do whose records hold pictures."""

    check: str = option(Kind.CHOICE, LEAVE_OUT, "decode", choices=("none", "header", "decode")).says(
        "how closely images are looked at",
        "`none` takes the JSON's word for an image's size; `header` reads it and asks for the end of the file; "
        "`decode` also walks every marker or chunk and decodes every pixel",
    )
    duplicates: str = option(Kind.CHOICE, LEAVE_OUT, "report", choices=("report", "leakage", "fail")).says(
        "what is done about pictures that are there more than once",
        "`report` lists them in [duplicates.jsonl](records.md#duplicatesjsonl); `leakage` refuses splits where a "
        "picture, or one that looks like it, is in another split, too; `fail` also those that have it twice "
        "themselves. The shards are kept then: the same command with `report` accepts them at once. "
        "Splits that are complete already are checked likewise, and stay",
    )
    format: str = option(Kind.CHOICE, PICTURES, "keep", choices=("keep", "jpeg", "png")).says(
        "write pictures as they are, or all in one format",
        "write pictures as they are, or all in one format; see [pictures.md](pictures.md)",
    )
    max_side: int | None = option(
        Kind.INTEGER, PICTURES, None, metavar="PX", least=1, largest=65_500, unit="pixels"
    ).says(
        "shrink pictures whose longer side has more pixels",
        "shrink larger pictures; boxes, masks, keypoints and panoptic maps stay in their places",
    )
    jpeg_quality: int = option(Kind.INTEGER, PICTURES, 95, metavar="Q", least=1, largest=100).says(
        "quality, 1 to 100, of what is written anew as JPEG"
    )

    def _faults(self) -> Iterator[str]:
        if self.writer == "beam" and self.duplicates != "report":
            yield f"--writer beam does not search for duplicates: leave out --duplicates {self.duplicates}"
        yield from super()._faults()

    @property
    def holds_pictures(self) -> bool:
        """Whether records hold any."""
        return True

    @property
    def box_policy(self) -> str:
        """See `recordmill.transforms.encoders.encode_objects.fit_box`."""
        return "keep"

    @property
    def pictures(self) -> PictureRules:
        return PictureRules(self.check, self.format, self.max_side, self.jpeg_quality)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        names = ("check", "format", "jpeg_quality", "max_side") if self.holds_pictures else ()
        return super().record_options | self._values(*names)


SIZE = re.compile("([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")
"""Height and width in pixels, as an option has them."""


def size_of(text: str) -> tuple[int, int] | None:
    """Height and width; None where the text has another form.

    >>> size_of("224x160"), size_of("224")
    ((224, 160), None)
    """
    match = SIZE.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None
