"""Options of the verbs that convert nothing."""

from collections.abc import Iterator
from typing import Literal

from recordmill.schemas.option import ARGUMENT, READ, RUN, WRITE, DataSet, Images, Options, Texts, opt, redefined
from recordmill.schemas.options import PictureOptions


class DataSetOptions(Options):
    """Base of the options of a verb that reads a data set."""

    folder: DataSet = opt(ARGUMENT, ..., "Folder of the data set.", "OUT", min_length=1)


class ServiceVerifyOptions(DataSetOptions):
    """Options of `verify` in a service, whose workers have no TensorFlow."""

    check: Literal["hashes", "decode"] = opt(RUN, ..., "Check checksums and records, or also decode every image.")
    sample: float = opt(
        RUN,
        1.0,
        "Fraction of each split's shards to read, at least 1. The names of shards decide which.",
        "FRACTION",
        ge=0,
        le=1,
    )
    workers: int | None = redefined(PictureOptions, "workers", usual="one per core, 64 for buckets")


class VerifyOptions(ServiceVerifyOptions):
    """Options of `recordmill verify`."""

    check: Literal["hashes", "decode", "tensorflow"] = opt(  # type: ignore[assignment]
        RUN,
        "tensorflow",
        "Check checksums and records, decode every image, or use TensorFlow for all of it. `hashes`: checksums, "
        "SHA-256 of files and images, and the contents of records. `decode`: also decode every image. `tensorflow`: "
        "TensorFlow, which must be installed, parses and decodes.",
    )
    recompute: int | None = opt(
        RUN,
        None,
        "Number of records of each shard whose features the model computes again. For a data set of `embed`.",
        "N",
        ge=1,
        le=4096,
    )
    images: Images = opt(
        READ,
        (),
        "Where the images are, for `--recompute`; repeatable.",
        "DIR|ZIP",
        "where they were",
        needs="recompute",
    )
    tolerance: float | None = opt(
        RUN,
        None,
        "Tolerance of `--recompute`, as a fraction of the largest feature.",
        "FRACTION",
        "that of the manifest, 0.001",
        needs="recompute",
        ge=0,
        le=1,
    )

    def _faults(self) -> Iterator[str]:
        if self.recompute is not None and self.check != "tensorflow":
            yield f"--recompute needs TensorFlow, and --check {self.check} does without it: give one"


class ExtractOptions(DataSetOptions):
    """Options of `recordmill extract`."""

    target: str = opt(ARGUMENT, ..., "Where to write it: a new or empty folder.", "DIR", min_length=1)
    split: str = opt(WRITE, "", "Extract only this split.")
    workers: int | None = redefined(PictureOptions, "workers", usual="one per core, 64 for buckets")


class ShowOptions(Options):
    """Options of `recordmill show`."""

    path: str = opt(
        ARGUMENT, ..., "Folder of a data set, any TFRecord file, or a quoted pattern of files.", "OUT", min_length=1
    )
    split: str = opt(READ, "", "Show only this split.")
    id: str = opt(READ, "", "Show the record of this image id, or file name.")
    index: int | None = opt(READ, None, "Start at this record, counted from 0 over all shards.", "N", ge=0)
    find: str = opt(
        READ,
        "",
        "Show records with an object, or image, of a class, or with a value in a feature.",
        "category=NAME|FEATURE=VALUE",
    )
    count: int | None = opt(
        READ,
        None,
        "Number of records. Default for consecutive or found ones: as many as fit side by side; with `--index` or "
        "`--id`: 1; with `--save` and a folder: 20.",
        "N",
        "as many as there is room for",
        ge=1,
    )
    as_json: bool = opt(WRITE, False, "Print one JSON document instead.", alias="json")
    save: str = opt(
        WRITE, "", "Save the image with boxes, masks, keypoints and names; several into a folder.", "FILE.png|DIR"
    )
    side: int = opt(WRITE, 1024, "Maximum of the image's longer side.", "PX", ge=64, le=16_384)

    @property
    def is_for_one_picture(self) -> bool:
        """True if --save names a file, and not a folder."""
        return self.save.lower().endswith((".png", ".jpg", ".jpeg"))

    @property
    def found(self) -> tuple[str, str]:
        """Both sides of --find; empty without it."""
        name, _, value = self.find.partition("=")
        return name, value

    def _faults(self) -> Iterator[str]:
        if self.save and self.as_json:
            yield "--save and --json each say what to do with a record; give one of them"
        if self.find and not all(self.found):
            yield f"--find {self.find!r} must be category=NAME, or FEATURE=VALUE"
        if self.id and self.find:
            yield "--id and --find each say which records; give one of them"
        if self.is_for_one_picture and (self.count or 1) > 1:
            yield f"--save {self.save} is one image, and --count {self.count} are more; name a folder to save them in"


class ReportOptions(DataSetOptions):
    """Options of `recordmill report`."""


class IndexOptions(Options):
    """Options of `recordmill index`."""

    paths_to_index: Texts = opt(
        ARGUMENT,
        ...,
        "Folder of a data set, any TFRecord file, or a quoted pattern of files; several.",
        "PATH",
        min_length=1,
        alias="paths",
    )


class SampleOptions(Options):
    """Options of `recordmill sample`."""

    folder: str = opt(ARGUMENT, ..., "Where to write it: a new or empty folder.", "DIR")
    count: int = opt(WRITE, 240, "Number of images.", "N", ge=1)
    seed: int = opt(WRITE, 0, "Seed of the generated images.", "N")
    odd: bool = opt(WRITE, False, "Add images in every unusual form: formats, depths, turned, damaged.")


class TerminalOptions(Options):
    """Options of all verbs: what a command shows while it runs."""

    progress: Literal["auto", "plain", "none"] = opt(
        RUN, "auto", "Show progress as a live line, as plain lines, or not. `auto`: a live line on a terminal."
    )
    debug: bool = opt(RUN, False, "Show tracebacks and Beam's log.")
    config: str = opt(
        RUN, "", "YAML file of options, by their names without dashes in front. Flags replace its values.", "FILE"
    )
    print_config: bool = opt(RUN, False, "Print the options as YAML for `--config`, and do nothing else.")
