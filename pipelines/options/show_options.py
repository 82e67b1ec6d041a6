"""What `recordmill show` is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.options.option import READ, WRITE, Kind, Options, option

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """What `recordmill show` is asked to do."""

    path: str = option(
        kind=Kind.ARGUMENT,
        group="",
        metavar="OUT",
        help="folder of a data set, a TFRecord file of anybody, or a pattern of files in quotes",
    )
    split: str = option("", kind=Kind.TEXT, group=READ, help="show only this split")
    id: str = option("", kind=Kind.TEXT, group=READ, help="the record of this image id, or file name")
    index: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=READ,
        metavar="N",
        help="begin at this record, counted from 0 over all shards",
        least=0,
    )
    find: str = option(
        "",
        kind=Kind.TEXT,
        group=READ,
        metavar="category=NAME|FEATURE=VALUE",
        help="records with an object, or image, of a class; or with a value in a feature",
    )
    count: int | None = option(
        None,
        kind=Kind.INTEGER,
        group=READ,
        metavar="N",
        help="how many records",
        docs=(
            "how many records. Of those that follow one another, or are found, as many as stand side by side; of an "
            "`--index` or `--id` 1; of `--save` with a folder 20"
        ),
        usual="as many as there is room for",
        least=1,
    )
    json: bool = option(
        False,
        kind=Kind.SWITCH,
        group=WRITE,
        help="print one JSON document instead",
    )
    save: str = option(
        "",
        kind=Kind.PATH,
        group=WRITE,
        metavar="FILE.png|DIR",
        help="save the picture with boxes, masks, keypoints and names drawn in; several into a folder",
    )
    side: int = option(
        1024,
        kind=Kind.INTEGER,
        group=WRITE,
        metavar="PX",
        help="longer side of the picture at the most",
        least=64,
        largest=16_384,
    )

    @property
    def is_for_one_picture(self) -> bool:
        """Whether --save names a file, and not a folder."""
        return self.save.lower().endswith(PICTURE_ENDINGS)

    @property
    def found(self) -> tuple[str, str]:
        """The two sides of --find; empty without it."""
        name, _, value = self.find.partition("=")
        return name, value

    def _faults(self) -> Iterator[str]:
        if self.save and self.json:
            yield "--save and --json each say what becomes of a record; give one of them"
        if self.find and not all(self.found):
            yield f"--find {self.find!r} must be category=NAME, or FEATURE=VALUE"
        if self.id and self.find:
            yield "--id and --find each say which records; give one of them"
        if self.is_for_one_picture and (self.count or 1) > 1:
            yield f"--save {self.save} is one picture, and --count {self.count} are more; name a folder to save them in"
