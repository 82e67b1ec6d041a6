"""Options of verbs that do not convert."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.inputs.image_options import LABEL_FORMATS_TEXT, LabelFormatName
from recordmill.schemas.inputs.option import (
    ARGUMENT,
    COMMON,
    LEAVE_OUT,
    READ,
    RUN,
    WRITE,
    Datas,
    DataSet,
    Images,
    Options,
    Output,
    Sets,
    Texts,
    redefine_option,
)
from recordmill.schemas.inputs.options import ContainerName, ConvertOptions, ImageOptions


class DataSetOptions(Options):
    """Options of a verb that reads a data set."""

    folder: DataSet = ARGUMENT.opt("Folder of the data set.", ..., "OUT")


class ServiceVerifyOptions(DataSetOptions):
    """Options of `verify` in a service, without TensorFlow on workers."""

    check: Literal["hashes", "decode"] = RUN.opt("Check checksums and records, or also decode every image.", ...)
    sample: float = RUN.opt(
        "Fraction of each split's shards to read, at least 1. The names of shards decide which.",
        1.0,
        "FRACTION",
        ge=0,
        le=1,
    )
    workers: int | None = redefine_option(ImageOptions, "workers", usual="one per core, 64 for buckets")


class VerifyOptions(ServiceVerifyOptions):
    """Options of `recordmill verify`."""

    check: Literal["hashes", "decode", "tensorflow"] | None = RUN.opt(  # type: ignore[assignment]
        "Check checksums and records, decode every image, or use TensorFlow for all of it. `hashes`: checksums, "
        "SHA-256 of files and images, and the contents of records. `decode`: also decode every image. `tensorflow`: "
        "TensorFlow, which must be installed, parses and decodes.",
        usual="tensorflow, or decode if TensorFlow is not installed",
    )

    @property
    def chosen_check(self) -> Check:
        """Check to do; by default, it depends on the machine."""
        if self.check is None:
            return Check.TENSORFLOW if self.recompute or find_spec("tensorflow") else Check.DECODE
        return Check(self.check)

    recompute: int | None = RUN.opt(
        "Number of records of each shard whose features the model computes again. For a data set of `embed`.",
        ge=1,
        le=4096,
    )
    images: Images = READ.opt(
        "Folders of the images, for `--recompute`; repeatable.",
        (),
        "DIR|ZIP",
        "the recorded folders",
        needs="recompute",
    )
    tolerance: float | None = RUN.opt(
        "Tolerance of `--recompute`, as a fraction of the largest feature.",
        metavar="FRACTION",
        usual="the value in the manifest, 0.001",
        needs="recompute",
        ge=0,
        le=1,
    )

    def _faults(self) -> Iterator[str]:
        if self.recompute is not None and self.check not in (None, "tensorflow"):
            yield f"--recompute needs TensorFlow, which --check {self.check} does not use. Give only one of them"


class ExtractOptions(DataSetOptions):
    """Options of `recordmill extract`."""

    target: str = ARGUMENT.opt("Output folder: new or empty.", ..., "DIR")
    format_: LabelFormatName = WRITE.opt(f"Format of the labels. {LABEL_FORMATS_TEXT}", "coco", alias="as")
    labels_only: bool = WRITE.opt(
        "Write no images. Labels have the names that the images would have. See [formats.md](formats.md#labels-only).",
        False,
    )
    split: str = WRITE.opt("Extract only this split.", "")
    workers: int | None = redefine_option(ImageOptions, "workers", usual="one per core, 64 for buckets")


class RepackOptions(DataSetOptions):
    """Options of `recordmill repack`."""

    output: Output = ARGUMENT.opt("Folder of the new data set: new or empty.", ..., "OUT2")
    container: ContainerName | None = WRITE.opt(
        "File format of the new shards. See [containers.md](containers.md#repack).",
        usual="with `--replan`, the container and compression of OUT",
    )
    gzip: bool = redefine_option(ConvertOptions, "gzip")
    replan: bool = WRITE.opt(
        "Plan the shards again, byte for byte as in one conversion of all images. For a data set that has grown. See "
        "[containers.md](containers.md#repack).",
        False,
    )
    dry_run: bool = redefine_option(ConvertOptions, "dry_run")
    workers: int | None = redefine_option(
        ImageOptions,
        "workers",
        text="A local job of 1,000 records or more starts one process per core, at most 8, and with `1` none. Each "
        "process writes complete shards.",
        usual="one process per core",
    )

    def _faults(self) -> Iterator[str]:
        if self.container is None and not self.replan:
            yield "--container is missing. Name the container of the new shards, or give --replan to plan them again"


class SealOptions(DataSetOptions):
    """Options of `recordmill seal`."""

    split: str = READ.opt("Seal only the job that writes this split, in a folder with parts of more than one job.", "")
    max_rejects: float | None = LEAVE_OUT.opt(
        "Fraction of images, or of annotations, that may be rejected.",
        metavar="FRACTION",
        usual="that of the parts",
        ge=0,
        le=1,
    )


class ShowOptions(Options):
    """Options of `recordmill show`."""

    path: str = ARGUMENT.opt("Folder of a data set, any TFRecord file, or a quoted pattern of files.", ..., "OUT")
    split: str = READ.opt("Show only this split.", "")
    id: str = READ.opt("Show the record of this image id, or file name.", "")
    index: int | None = READ.opt("Start at this record, counted from 0 over all shards.", ge=0)
    find: str = READ.opt(
        "Show records with an object, or image, of a class, or with a value in a feature.",
        "",
        "category=NAME|FEATURE=VALUE",
    )
    count: int | None = READ.opt(
        "Number of records. Default for consecutive records and for `--find`: as many as fit side by side; with "
        "`--index` or `--id`: 1; with `--save` and a folder: 20.",
        usual="as many as fit",
        ge=1,
    )
    as_json: bool = WRITE.opt("Print one JSON document instead.", False, alias="json")
    save: str = WRITE.opt(
        "Save the image with boxes, masks, keypoints and names; several into a folder.", "", "FILE.png|DIR"
    )
    side: int = WRITE.opt("Maximum of the image's longer side.", 1024, "PX", ge=64, le=16_384)

    @property
    def saves_one_image(self) -> bool:
        """True if --save names a file, and not a folder."""
        return self.save.lower().endswith((".png", ".jpg", ".jpeg"))

    @property
    def find_terms(self) -> tuple[str, str]:
        """Return both sides of --find; empty without it."""
        name, _, value = self.find.partition("=")
        return name, value

    def _faults(self) -> Iterator[str]:
        if self.save and self.as_json:
            yield "--save and --json contradict each other. Give only one of them"
        if self.find and not all(self.find_terms):
            yield f"--find {self.find!r} must be category=NAME, or FEATURE=VALUE"
        if self.id and self.find:
            yield "--id and --find both select records. Give only one of them"
        if self.saves_one_image and (self.count or 1) > 1:
            yield f"--save {self.save} is one image, but --count is {self.count}. Name a folder to save them in"


class IndexOptions(Options):
    """Options of `recordmill index`."""

    paths_to_index: Texts = ARGUMENT.opt(
        "Folder of a data set, any TFRecord or tar file, or a quoted pattern of files; several.",
        ...,
        "PATH",
        alias="paths",
    )


class DataOptions(Options):
    """Options of `recordmill convert` that no format has."""

    data: Datas = ARGUMENT.opt(
        "What to convert: a folder, a .zip, a file, or a quoted pattern of files.", (), "DATA", also="rows"
    )
    format_: str | None = READ.opt(
        "Format of DATA, if none, or more than one, is recognised.",
        metavar="NAME",
        alias="format",
        recorded=False,
        rank=COMMON,
    )
    sets: Sets = READ.opt(
        "Data sets to combine, each with its own options. A list of mappings in a `--config` file, a list of dicts in "
        'Python, JSON on the command line (repeatable): `--sets \'{"data": "A", "split": "val"}\'`. For sets '
        "without separate options, give several DATA. See [shape.md](shape.md#several-sets).",
        (),
        "JSON",
        recorded=False,
    )


class SampleOptions(Options):
    """Options of `recordmill sample`."""

    folder: str = ARGUMENT.opt("Output folder: new or empty.", ..., "DIR")
    count: int = WRITE.opt("Number of images.", 240, ge=1)
    seed: int = WRITE.opt("Seed of the generated images.", 0)
    odd: bool = WRITE.opt("Add unusual images: other formats and depths, rotated, damaged.", False)


class TerminalOptions(Options):
    """Options of all verbs: output on the terminal."""

    progress: Literal["auto", "plain", "none"] = RUN.opt(
        "Show progress as a live line, as plain lines, or not at all. `auto`: a live line on a terminal.", "auto"
    )
    debug: bool = RUN.opt("Show tracebacks and Beam's log.", False)
    config: str = RUN.opt(
        "YAML file of options, by their names without leading dashes. Flags override its values.", "", "FILE"
    )
    print_config: bool = RUN.opt("Print the options as YAML for `--config`, and exit.", False)
