"""Options that several conversions share. Each source has its own options in its own folder, below `transforms`.

Nothing here imports Beam, so that a command line is read, and refused, at once.
"""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any, Literal

from recordmill.schemas.features import FeatureTable, ShardNaming
from recordmill.schemas.inputs.encoders import MOST_TOKENS, TextForm, TextSettings
from recordmill.schemas.inputs.images import PictureRules
from recordmill.schemas.inputs.option import (
    LEAVE_OUT,
    PICTURES,
    READ,
    RUN,
    TEXTS,
    WRITE,
    File,
    Files,
    Folders,
    Images,
    Options,
    Output,
    Shares,
    Size,
)
from recordmill.schemas.inputs.splits import ONLY_CASE, Division, SplitShares, group_fault, split_name_fault
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.names import NameSources, dataset_name_fault
from recordmill.schemas.shards import ShardSizing

DEFAULT_SHARD_BYTES = 150_000_000
MAX_SHARDS = 99_999  # five digits in a shard's name
INT64 = 1 << 63
ALL_TRAIN = (("train", Fraction(1)),)

RecipeValue = str | int | float | bool | list[str] | None
TextChoice = Literal["raw", "counts", "tfidf", "tokens"]


class ConvertOptions(Options):
    """Options of all conversions."""

    output: Output = WRITE.opt(
        "Folder of the data set. It is created if it is missing.", ..., "DIR", also="output-dir out dest"
    )
    name: str = WRITE.opt("Prefix of the shards' file names.", ...)
    layout: str = WRITE.opt("Features of a record. See [records.md](records.md).", ...)
    shard_size: Size | None = WRITE.opt(
        "Target size of a shard, before compression. Each shard but the last is within an image of it. If one image is "
        "larger, its size is the target.",
        metavar="150MB",
        usual=f"{DEFAULT_SHARD_BYTES // 10**6}MB",
    )
    num_shards: int | None = WRITE.opt(
        "Number of shards of each split. Their numbers of images differ by at most one.",
        ge=1,
        le=MAX_SHARDS,
        also="shards",
    )
    examples_per_shard: int | None = WRITE.opt(
        "Number of records in each shard but the last. An image that turns out to be broken while it is written is "
        "missing from its shard.",
        ge=1,
        also="images-per-shard records-per-shard",
    )
    gzip: bool = WRITE.opt(
        "Compress the shards by GZIP, named `.gz`. JPEGs do not get smaller. Writing (40 MB/s per core) and reading "
        "get slower.",
        False,
    )
    seed: int = WRITE.opt(
        "Seed of the order of records. The same seed gives the same order.",
        0,
        ge=-INT64,
        le=INT64 - 1,
        also="random-seed shuffle-seed",
    )
    writer: Literal["planned", "beam"] = WRITE.opt(
        "Write planned shards, or use Beam's sink. Each planned shard is written by one worker. With `beam`, every "
        "record is shuffled by `WriteToTFRecord`, the shard of a record differs from run to run, only `--num-shards` "
        "sizes shards, a stopped job starts again from the beginning, and there are no statistics and no search for "
        "duplicates.",
        "planned",
    )
    split: Shares = WRITE.opt(
        "One split, or several with their shares. `train=0.8,val=0.1,test=0.1`: shares are decimals or fractions "
        "(`1/3`) and sum to 1. A single split is added to the folder.",
        ALL_TRAIN,
        "NAME|NAME=SHARE,…",
        "train",
    )
    split_seed: int = WRITE.opt(
        "Seed of the split assignment. `--seed` only orders records: it moves nothing from one split to another.",
        0,
        ge=-INT64,
        le=INT64 - 1,
    )
    overwrite: bool = WRITE.opt(
        "Replace these splits. What the folder holds of them stays until the new ones are complete.",
        False,
        also="force",
    )
    dry_run: bool = WRITE.opt("Print the plan and write nothing.", False)
    max_rejects: float = LEAVE_OUT.opt(
        "Fraction of images, or of annotations, that may be rejected. If more of all splits are rejected, the job "
        "fails: before the first image is read, if annotations and file names show it; as soon as images have made it "
        "certain and 100 rejects are known; or at its end. The shards are kept: the same command with a larger "
        "fraction accepts them at once.",
        0.01,
        "FRACTION",
        ge=0,
        le=1,
    )

    @property
    def more_files(self) -> tuple[str, ...]:
        """Files that the job reads and that no option names as such."""
        return ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *self.more_files)

    @property
    def shares(self) -> SplitShares:
        return SplitShares(self.split, self.split_seed)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that the options name."""
        return self.shares.names

    @property
    def division_options(self) -> dict[str, RecipeValue]:
        """The part of `record_options` that assigns images to splits."""
        return {"split": str(self.shares), "split_seed": self.split_seed}

    @property
    def table(self) -> FeatureTable:
        """Features of a record, as far as the options determine them."""
        return LAYOUTS[self.layout]

    @property
    def sizing(self) -> ShardSizing:
        if self.num_shards is not None or self.examples_per_shard is not None:
            return ShardSizing(num_shards=self.num_shards, examples_per_shard=self.examples_per_shard)
        usual = LAYOUTS[self.layout].examples_per_shard
        if usual is not None and self.shard_size is None:
            return ShardSizing(examples_per_shard=usual)
        return ShardSizing(shard_bytes=self.shard_size or DEFAULT_SHARD_BYTES)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        """Options that determine the bytes of shards."""
        return {
            **self._values("examples_per_shard", "gzip", "num_shards", "seed"),
            "shard_size": self.sizing.shard_bytes,
            "writer": self.writer,
        }

    def _values(self, *names: str) -> dict[str, RecipeValue]:
        return {name: getattr(self, name) for name in names}

    def _faults(self) -> Iterator[str]:
        if fault := dataset_name_fault(self.name):
            yield f"--name {self.name!r} {fault}"
        yield from self._share_faults()
        naming = LAYOUTS[self.layout].naming
        if len(self.split) > 1 and naming is ShardNaming.KERAS:
            yield f"--layout {self.layout} names shards without their split, so a folder has one: give one --split"
        if self.writer == "beam" and naming is not ShardNaming.TFDS:
            yield f"--writer beam cannot name shards as --layout {self.layout} does, by their number of examples"
        if len(sizes := self.given("num_shards", "shard_size", "examples_per_shard")) > 1:
            yield f"{' and '.join(sizes)} contradict each other: give one"
        if self.writer == "beam" and (self.shard_size or self.examples_per_shard):
            yield "--writer beam sizes shards by --num-shards only (without it, the runner chooses)"

    def _share_faults(self) -> Iterator[str]:
        names = self.splits
        yield from (f"--split {split!r} {fault}" for split in names if (fault := split_name_fault(split)))
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"--split names {name} twice"
        for one, other in combinations(sorted(set(names)), 2):
            if one.lower() == other.lower():
                yield f"--split names {one} and {other}, {ONLY_CASE}: give one of them another name"
        total = sum(share for _, share in self.split)
        if len(self.split) < 2 and self.split_seed:
            yield "--split-seed divides a data set, but --split names a single split"
        if any(not 0 < share <= 1 for _, share in self.split):
            yield "--split: every share must be more than 0 and at most 1"
        elif total != 1:
            yield f"--split: the shares sum to {float(total):.15g}, not 1 (thirds can be given as 1/3)"


class ImageOptions(ConvertOptions):
    """Options of all conversions of image files."""

    images: Images = READ.opt(
        "Folder or .zip of images, with all folders in it; repeatable. Local or gs://. A name that two folders have is "
        "an error.",
        ...,
        "DIR|ZIP",
        also="image-dir img-dir input",
    )
    workers: int | None = RUN.opt(
        "Threads that fetch and check images, per Beam worker. A local job of 1,000 images or more also starts one "
        "process per core, at most 8, each of which writes whole shards with two threads; 1 turns these off.",
        usual="one per core, 64 for buckets",
        ge=1,
        le=256,
        also="num-workers jobs",
    )

    @property
    def name_sources(self) -> NameSources:
        """Sources of the names of images and of files."""
        return NameSources(self.images, self.images)


class DividedOptions(ImageOptions):
    """Options of conversions that assign images to splits by their names."""

    group_from: str | None = WRITE.opt(
        "Keep images in one split whose paths match alike. A regular expression, searched in each path below "
        "`--images`. Images with the same match (its first group, or else all of it) belong together, for example "
        "those of a patient or a video: `'patient[0-9]+'`, `'^(.*)_frame'`.",
        metavar="REGEX",
    )
    groups: File | None = WRITE.opt(
        "Keep images in one split that a file groups. The `duplicates.jsonl` of a data set of the same images, or CSV "
        "with the columns `file_name` and `group` (a patient, a video, a place).",
        metavar="FILE",
    )

    @property
    def keeps_groups(self) -> bool:
        return bool(self.group_from or self.groups)

    @property
    def division(self) -> Division:
        """Assignment to splits, without the groups of a file."""
        return Division(self.shares, unicodedata.normalize("NFC", self.group_from or ""))  # as names are

    @property
    def division_options(self) -> dict[str, RecipeValue]:
        return super().division_options | ({"group_from": self.group_from} if self.group_from else {})

    def _faults(self) -> Iterator[str]:
        if self.group_from is not None and (fault := group_fault(self.group_from)):
            yield f"--group-from {self.group_from} {fault}"
        given = self.given("group_from", "groups")
        if len(self.split) < 2:
            yield from (f"{each} keeps groups of images in one split, but --split names only one" for each in given)
        if len(given) > 1:
            yield "--groups and --group-from both say which images belong together: give one"
        yield from super()._faults()


class PictureOptions(ImageOptions):
    """Options of conversions whose records hold images."""

    check: Literal["none", "header", "decode"] = LEAVE_OUT.opt(
        "How thoroughly images are checked. `none` trusts the sizes in the JSON; `header` reads them and looks for the "
        "end of the file; `decode` also reads every marker or chunk and decodes every pixel.",
        "decode",
    )
    duplicates: Literal["report", "leakage", "fail"] = LEAVE_OUT.opt(
        "What to do about duplicate images. `report` lists them in [duplicates.jsonl](records.md#duplicatesjsonl); "
        "`leakage` refuses an image that is in two splits, exactly or nearly; `fail` also one that is in a split "
        "twice. The shards are kept: the same command with `report` accepts them at once. Complete splits are checked, "
        "too, and stay.",
        "report",
    )
    format: Literal["keep", "jpeg", "png"] = PICTURES.opt(
        "Format of stored images. `keep` stores files unchanged, see [pictures.md](pictures.md).", "keep"
    )
    max_side: int | None = PICTURES.opt(
        "Shrink images whose longer side has more pixels. Boxes, masks, keypoints and panoptic maps follow.",
        metavar="PX",
        ge=1,
        le=65_500,
        also="resize image-size",
    )
    jpeg_quality: int = PICTURES.opt(
        "Quality of images that are encoded as JPEG.", 95, "Q", ge=1, le=100, also="quality"
    )

    def _faults(self) -> Iterator[str]:
        if self.writer == "beam" and self.duplicates != "report":
            yield f"--writer beam does not search for duplicates: leave out --duplicates {self.duplicates}"
        yield from super()._faults()

    @property
    def holds_pictures(self) -> bool:
        """True if records hold images."""
        return True

    @property
    def box_policy(self) -> str:
        """See `recordmill.transforms.encoders.encode_objects.fit_boxes`."""
        return "keep"

    @property
    def pictures(self) -> PictureRules:
        return PictureRules(self.check, self.format, self.max_side, self.jpeg_quality)

    @property
    def record_options(self) -> dict[str, RecipeValue]:
        names = ("check", "format", "jpeg_quality", "max_side") if self.holds_pictures else ()
        return super().record_options | self._values(*names)


SIZE = re.compile("([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


def size_of(text: str) -> tuple[int, int] | None:
    """Return height and width in pixels; None if the text has another form.

    >>> size_of("224x160"), size_of("224")
    ((224, 160), None)
    """
    match = SIZE.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


_FITTED = ("text_features", "min_df", "ngrams", "no_lower", "stop_words", "fit_split")  # saved encoders have their own
_FRACTION = re.compile(r"0?\.\d{1,18}|1\.0{1,18}|\d(\.\d{1,17})?[eE]-\d{1,2}")
_KEYS = {TextForm.COUNTS: ("index", "value"), TextForm.TFIDF: ("index", "value"), TextForm.TOKENS: ("tokens",)}


class TextOptions(Options):
    """Options of text encoders, see docs/text.md."""

    text_features: int | None = TEXTS.opt(
        "Maximum number of terms of a vocabulary. The most frequent ones are kept; of the same frequency, the first "
        "in alphabetical order.",
        usual="all",
        ge=1,
        le=1 << 31,
    )
    min_df: str = TEXTS.opt(
        "Minimum number, or fraction, of texts that contain a term. `2` is a number of texts; `0.01` and `1.0` are "
        "fractions of them.",
        "1",
        "N|FRACTION",
    )
    ngrams: str = TEXTS.opt(
        f"Minimum and maximum number of tokens of a term. `1,2` adds pairs of neighbours. At most {MOST_TOKENS}.",
        "1,1",
        "MIN,MAX",
    )
    no_lower: bool = TEXTS.opt("Do not lower-case texts first.", False)
    stop_words: Files = TEXTS.opt("Tokens to leave out, one a line, UTF-8; repeatable.", (), "FILE", "none")
    fit_split: str | None = TEXTS.opt(
        "Split whose texts give the vocabulary.", metavar="NAME", usual="train, or the only split"
    )
    encoders: Folders = TEXTS.opt(
        "Folder of saved encoders, which are applied and not fitted; repeatable. The folder of a data set, or its "
        "`encoders/`.",
        (),
        "DIR",
    )
    text_names: str | None = TEXTS.opt(
        "Names of the features. `index=words_index,value=words_value`, or `tokens=…`; `{column}` stands for the column "
        "of the texts.",
        metavar="index=NAME,value=NAME",
        usual="{column}/index, {column}/value, {column}/tokens",
    )

    def settings(self, form: TextForm, stop_words: tuple[str, ...]) -> TextSettings:
        """Return the settings that an encoder is fitted with; `stop_words` are the contents of the files."""
        fewest, most = self._ngrams
        return TextSettings(
            form,
            (fewest, most),
            not self.no_lower,
            tuple(sorted(set(stop_words))),
            float(self.min_df) if _FRACTION.fullmatch(self.min_df) else int(self.min_df),
            self.text_features,
        )

    def text_feature_names(self, form: TextForm, column: str) -> dict[str, str]:
        """Return the names of `--text-names`, by `index`, `value` or `tokens`.

        Raises:
            ValueError: they do not fit `form`.
        """
        if self.text_names is None:
            return {}
        pairs = [part.partition("=") for part in self.text_names.split(",")]
        names = {key.strip(): name.strip().replace("{column}", column) for key, _, name in pairs}
        has_all = all(names.values()) and not any("=" in name for name in names.values())
        if set(names) - set(_KEYS[form]) or len(names) < len(pairs) or not has_all:
            keys = ",".join(f"{key}=NAME" for key in _KEYS[form])
            raise ValueError(f"{self.text_names!r} is not {keys}, the features of texts as {form.value}")
        if len(set(names.values())) < len(names):
            raise ValueError(f"{self.text_names!r} gives two features one name")
        return names

    @property
    def _ngrams(self) -> tuple[int, int]:
        fewest, most = map(int, self.ngrams.split(","))
        return fewest, most

    def text_record_options(self) -> dict[str, Any]:
        """Options that determine the bytes of shards, besides the files that they name."""
        return {
            "fit_split": self.fit_split,
            "lower": not self.no_lower,
            "min_df": self.min_df,
            "ngrams": self.ngrams,
            "text_features": self.text_features,
            "text_names": self.text_names,
        }

    def _text_faults(self, form: TextForm, asking: str) -> Iterator[str]:
        """Yield what is wrong with these options, if the flag `asking` chooses `form`."""
        if form is TextForm.RAW:
            given = self.given(*_FITTED, "encoders", "text_names")
            yield from (f"{each} would do nothing without {asking} counts, tfidf or tokens" for each in given)
            return
        if self.encoders and (own := self.given(*_FITTED)):
            yield f"--encoders has vocabulary and settings of its own: leave it out, or {', '.join(own)}"
        if not re.fullmatch("[1-9] *, *[1-9]", self.ngrams) or self._ngrams[0] > self._ngrams[1]:
            yield f"--ngrams {self.ngrams!r} must be two numbers from 1 to {MOST_TOKENS}, the smaller first: 1,2"
        elif form is TextForm.TOKENS and self._ngrams != (1, 1):
            yield f"--ngrams {self.ngrams}: tokens keep the order of the text, and pairs of them do not"
        is_fraction = _FRACTION.fullmatch(self.min_df) and 0 < float(self.min_df) <= 1
        if not (is_fraction or re.fullmatch("[1-9][0-9]{0,17}", self.min_df)):
            yield f"--min-df {self.min_df!r} must be a number of texts, 2, or a fraction of them between 0 and 1, 0.01"
        if self.fit_split is not None and (fault := split_name_fault(self.fit_split)):
            yield f"--fit-split {self.fit_split!r} {fault}"


def pairs(options: tuple[str, ...]) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping."""
    return {name: value for name, _, value in (each.partition("=") for each in options)}
