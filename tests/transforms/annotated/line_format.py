"""A format for tests: files `*.rows` of lines `image class x y width height`, in pixels, that name their images."""

from collections.abc import Iterator
from typing import BinaryIO

from recordmill.schemas.inputs.image_options import match_option
from recordmill.schemas.inputs.option import redefine_option
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.names import Match
from recordmill.schemas.rejects import Reason
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.source import LabelFault, LabelledImage, Source, SourceFolder


class LineOptions(FormatOptions):
    name: str = redefine_option(FormatOptions, "name", "lines")
    match: Match = match_option()

    def source(self) -> Source:
        return Source(self.data, "lines", (SourceFolder(self.data),), parse, is_label)


def is_label(name: str) -> bool:
    return name.endswith(".rows")


def parse(file: BinaryIO, name: str) -> Iterator[LabelledImage]:
    for number, line in enumerate(file, 1):
        image, class_, *box = line.decode().split()
        if len(box) != 4:
            yield LabelledImage(None, (LabelFault(Reason.MALFORMED_BOX, f"{len(box)} numbers", number),))
            continue
        yield LabelledImage(Sample(image, objects=(SampleObject(class_, tuple(map(float, box))),)))
