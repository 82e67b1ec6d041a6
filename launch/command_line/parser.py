"""The command line's grammar: verbs, flags, help."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from recordmill.launch.command_line.flags import names, size_bytes, split_shares
from recordmill.pipelines.options.coco_options import ANNOTATIONS, BOX_POLICIES, MASKS, CocoOptions
from recordmill.pipelines.options.convert_options import CHECKS, DEFAULT_SHARD_BYTES, FORMATS, WRITERS, ConvertOptions
from recordmill.pipelines.options.folder_options import LABEL_FROM, FolderOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.layouts import COCO_LAYOUTS

_BEAMS = ("--project", "--region", "--runner")
"""Flags of Beam's that have no underscore to know them by."""

PROGRESS = ("auto", "plain", "none")

_EPILOG = """\
Flags after a lone -- go to Apache Beam as they are, for example
  -- --direct_running_mode=multi_processing --direct_num_workers=4
Exit codes: 0 done; 1 the job failed, verify or extract found a fault; 2 the command or its configuration is wrong.
"""


class _Parser(argparse.ArgumentParser):
    """Refuses what it does not know, and names what was probably meant."""

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} ({self.prog} --help lists the flags)")

    def describe_unknown(self, argument: str) -> str:
        """What to say of an argument that this verb does not know."""
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return f"unexpected argument {argument!r}"
        if flag in self._option_string_actions:
            return f"{flag} must stand after the verb"
        if "_" in flag or flag in _BEAMS:
            return f"unknown flag {flag}; Beam's flags go after a lone --"
        near = difflib.get_close_matches(flag, self._option_string_actions, 1)
        return f"unknown flag {flag}" + (f"; did you mean {near[0]}?" if near else "")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The verb and its flags, without what stands after a lone `--`.

    Raises:
        ConfigError: something that the verb does not know, or a value of a wrong type.
        SystemExit: --help or --version was asked for, and has been answered.
    """
    parser, verbs = _parsers()
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        verb = verbs[parsed.verb]
        verb.error("; ".join(map(verb.describe_unknown, unknown)))
    if getattr(parsed, "progress", "auto") not in PROGRESS:
        verbs[parsed.verb].error(f"--progress {parsed.progress!r} is none of {', '.join(PROGRESS)}")
    workers = getattr(parsed, "workers", None)
    if workers is not None and not 1 <= workers <= 256:
        verbs[parsed.verb].error(f"--workers {workers} must be 1 to 256")
    return parsed


def coco_options(parsed: argparse.Namespace) -> CocoOptions:
    """The options of a parsed `recordmill coco`.

    Raises:
        ConfigError: with every fault.
    """
    given = {name: getattr(parsed, name) for name in CocoOptions.__dataclass_fields__}
    for repeatable in ("images", "panoptic_masks", *ANNOTATIONS):
        given[repeatable] = tuple(given[repeatable] or ())
    return CocoOptions(**given)


def folder_options(parsed: argparse.Namespace) -> FolderOptions:
    """The options of a parsed `recordmill folder`.

    Raises:
        ConfigError: with every fault.
    """
    given = {name: getattr(parsed, name) for name in FolderOptions.__dataclass_fields__}
    for repeatable in ("images", "labels"):
        given[repeatable] = tuple(given[repeatable] or ())
    return FolderOptions(**given)


def flags_of(verb: str) -> list[argparse.Action]:
    """What argparse knows of a verb's flags, in the order of its help."""
    return [action for action in _parsers()[1][verb]._actions if action.option_strings and action.dest != "help"]


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(
        prog="recordmill",
        description="Data sets of pictures and labels become sharded TFRecord files of tf.Example.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for add in (_add_coco, _add_folder, _add_verify, _add_extract, _add_sample):
        verb = add(verbs)
        verb.add_argument("--debug", action="store_true", help="show tracebacks and Beam's log")
    return parser, verbs.choices


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __call__(self, parser, *_):
        from importlib.metadata import version

        print(f"recordmill {version('recordmill')}")
        parser.exit()


def _add_coco(verbs) -> _Parser:
    verb = verbs.add_parser(
        "coco",
        help="COCO annotations and images -> TFRecord shards",
        description="COCO annotations and images become TFRecord shards, with a manifest that says what is in them.",
        epilog=_EPILOG,
    )
    inputs = verb.add_argument_group("what to read")
    folder = "folder or .zip of images, local or gs://; repeatable; a file_name may hold sub-folders"
    _add(inputs, "--images", folder, "DIR|ZIP", action="append")
    for flag, text in (
        ("--instances", "objects: boxes, segmentations; repeatable, as every file below; all are joined on image id"),
        ("--keypoints", "objects with keypoints; joined with --instances on annotation id"),
        ("--captions", "captions"),
        ("--panoptic", "panoptic segments; needs --panoptic-masks"),
        ("--stuff", "regions of stuff, for a semantic mask"),
        ("--image-info", "images without annotations, as of test sets"),
    ):
        _add(inputs, flag, text, "FILE", action="append")
    _add(inputs, "--panoptic-masks", "the PNGs of --panoptic", "DIR|ZIP", action="append")
    _add_switch(inputs, "--no-list", "do not list --images: take every file to be there, and of the usual size")
    outputs = verb.add_argument_group("what to write")
    _add_output(outputs, CocoOptions.name)
    _add(
        outputs, "--split", "train, val, …; each is added to the folder by a run of its own", default=CocoOptions.split
    )
    _add_choice(outputs, "--layout", "features of a record", COCO_LAYOUTS, CocoOptions.layout)
    _add_choice(outputs, "--masks", "masks of objects, as PNG, as COCO's run lengths, or both", tuple(MASKS), "none")
    _add_sizes(outputs, " of layout keras: 4096")
    screening = verb.add_argument_group("what to leave out")
    policy = "what becomes of a box that crosses its image's edge"
    _add_choice(screening, "--boxes", policy, BOX_POLICIES, CocoOptions.boxes)
    _add_switch(screening, "--no-crowd", "leave out annotations with iscrowd 1")
    _add(screening, "--min-area", "leave out smaller annotations", "PX2", type=float, default=CocoOptions.min_area)
    only = "keep only annotations of these categories"
    _add(screening, "--categories", only, "NAME[,NAME…]", type=_typed(names), default=())
    _add_checks(screening, "fraction of images, or annotations, that may be rejected")
    _add_pictures(verb)
    _add_running(verb)
    return verb


def _add_folder(verbs) -> _Parser:
    verb = verbs.add_parser(
        "folder",
        help="class folders, or labelled images -> TFRecord shards",
        description=(
            "Images of one class each are checked and written as tf.Examples into sharded TFRecord files. The class is "
            "the folder that an image is in, the beginning of its name, or what a table says."
        ),
        epilog=_EPILOG,
    )
    inputs = verb.add_argument_group("what to read")
    _add(inputs, "--images", "a folder or .zip, and all folders in it; repeatable", "DIR|ZIP", action="append")
    table = "CSV of image paths and their labels, and perhaps splits; repeatable"
    _add(inputs, "--labels", table, "FILE", action="append")
    for what in ("path", "label", "split"):
        _add(inputs, f"--{what}-column", f"its column of {what}s, if that has no usual name", "NAME")
    source = "the class is an image's first folder, or begins its file's name"
    _add_choice(inputs, "--label-from", source, LABEL_FROM, FolderOptions.label_from)
    separator = "what ends the class in a name: cat_0.jpg (default _)"
    _add(inputs, "--label-separator", separator, "TEXT", default=FolderOptions.label_separator)
    outputs = verb.add_argument_group("what to write")
    _add_output(outputs, FolderOptions.name)
    shares = "one split, or several with their shares of the images (default train)"
    _add(outputs, "--split", shares, "NAME|NAME=SHARE,…", type=_typed(split_shares), default=FolderOptions.split)
    _add(outputs, "--split-seed", "divides otherwise", "N", type=int, default=FolderOptions.split_seed)
    _add_switch(outputs, "--stratify", "give each split its share of every class")
    only = "only these classes, in the order of their indices (default all, sorted)"
    _add(outputs, "--classes", only, "NAME[,NAME…]", type=_typed(names), default=())
    _add_choice(outputs, "--layout", "features of a record", (FolderOptions.layout,), FolderOptions.layout)
    _add_sizes(outputs)
    screening = verb.add_argument_group("what to leave out")
    _add_checks(screening, "fraction of images that may be rejected")
    _add_pictures(verb)
    _add_running(verb)
    return verb


def _add_output(outputs, name: str) -> None:
    _add(outputs, "--output", "folder of the data set, made if need be", "DIR", default="")
    _add(outputs, "--name", f"begins the shards' file names (default {name})", default=name)
    _add_choice(outputs, "--writer", "our writer, or Beam's stock sink", WRITERS, ConvertOptions.writer)
    _add_switch(outputs, "--overwrite", "replace what the folder holds of these splits")
    _add_switch(outputs, "--dry-run", "print the plan and write nothing")


def _add_sizes(outputs, usual: str = "") -> None:
    size = f"aim at shards of so many bytes, before compression (default {DEFAULT_SHARD_BYTES // 10**6}MB)"
    _add(outputs, "--shard-size", size, "150MB", type=_typed(size_bytes))
    _add(outputs, "--num-shards", "so many shards a split, of equal numbers of images", "N", type=int)
    default = f" (default{usual})" if usual else ""
    _add(outputs, "--examples-per-shard", f"so many records in each shard but the last{default}", "N", type=int)
    _add_switch(outputs, "--gzip", "compress the shards (JPEGs do not get smaller, and reading gets slower)")
    order = "orders the records: the same seed, the same order"
    _add(outputs, "--seed", order, "N", type=int, default=ConvertOptions.seed)


def _add_checks(screening, rejects: str) -> None:
    _add_choice(screening, "--check", "how closely images are looked at", CHECKS, ConvertOptions.check)
    share = f"{rejects} (default {ConvertOptions.max_rejects})"
    _add(screening, "--max-rejects", share, "FRACTION", type=float, default=ConvertOptions.max_rejects)


def _add_pictures(verb: _Parser) -> None:
    pictures = verb.add_argument_group("what becomes of pictures")
    _add_choice(pictures, "--format", "write them as they are, or all in one format", FORMATS, ConvertOptions.format)
    _add(pictures, "--max-side", "shrink larger ones to so many pixels", "PX", type=int)
    quality = f"of JPEGs that are encoded anew (default {ConvertOptions.jpeg_quality})"
    _add(pictures, "--jpeg-quality", quality, "Q", type=int, default=ConvertOptions.jpeg_quality)


def _add_verify(verbs) -> _Parser:
    verb = verbs.add_parser(
        "verify",
        help="read a data set back and prove it whole",
        description="Every record is read, parsed and decoded by TensorFlow, and held against the manifest.",
        epilog=_EPILOG,
    )
    verb.add_argument("folder", metavar="OUT", help="folder of the data set")
    _add_running(verb)
    return verb


def _add_extract(verbs) -> _Parser:
    verb = verbs.add_parser(
        "extract",
        help="records back to image files + COCO JSON",
        description="The images of a data set become files again, and what its records say of them COCO's JSON.",
        epilog=_EPILOG,
    )
    verb.add_argument("folder", metavar="OUT", help="folder of the data set")
    verb.add_argument("target", metavar="DIR", help="where to write it; a new or empty folder")
    _add(verb, "--split", "extract only this split", default="")
    _add_running(verb)
    return verb


def _add_sample(verbs) -> _Parser:
    verb = verbs.add_parser(
        "sample",
        help="write a small COCO data set, drawn by the program",
        description=(
            "A small COCO data set of every kind is drawn: JPEG and PNG, grey and colour, crowds, images without "
            "objects, one missing file and one broken one."
        ),
    )
    verb.add_argument("folder", metavar="DIR", help="where to write it; a new or empty folder")
    _add(verb, "--count", "how many images (default 240)", "N", type=int, default=240)
    _add(verb, "--seed", "draws other pictures", "N", type=int, default=0)
    _add_switch(verb, "--odd", "add pictures in every odd form: formats, depths, turned, damaged")
    return verb


def _add_running(verb: _Parser) -> None:
    running = verb.add_argument_group("how to run")
    threads = "threads that fetch and check images, per process (default: one a core, 32 for buckets)"
    _add(running, "--workers", threads, "N", type=int)
    _add_choice(running, "--progress", "a live line, plain lines, or none", PROGRESS, "auto")


def _add(group, flag: str, text: str, metavar: str | None = None, **kwargs: Any) -> None:
    group.add_argument(flag, help=text, metavar=metavar or flag[2:].upper(), **kwargs)


class Choice(argparse.Action):
    """One of several words. Not argparse's `choices`: the options name all faults at once."""

    def __init__(self, allowed: tuple[str, ...], **kwargs: Any):
        super().__init__(metavar="|".join(allowed), **kwargs)
        self.allowed = allowed

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)


def _add_choice(group, flag: str, text: str, choices: tuple[str, ...], default: str) -> None:
    group.add_argument(flag, action=Choice, allowed=choices, help=f"{text} (default {default})", default=default)


def _add_switch(group, flag: str, text: str) -> None:
    group.add_argument(flag, help=text, action="store_true")


def _typed(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """`convert` with its own message where argparse would say only that the value is invalid."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return converted
