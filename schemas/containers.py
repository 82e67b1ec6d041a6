"""Containers: kinds of files for the records of a data set. A container is a module and a row of CONTAINERS."""

import re
from importlib.util import find_spec

import msgspec

TFRECORD = "tfrecord"
"""The container without `--container`. Recipes and manifests name another one only."""

_NUMBER = re.compile(r"\{(index|count):0(\d)d\}")


class ContainerRow(msgspec.Struct, frozen=True):
    """A row of CONTAINERS.

    Attributes:
        name: Value of `--container`.
        module: Module with `CONTAINER`, a `recordmill.transforms.containers.container.Container`. Imported when used.
        file: Pattern of the names of shards, with `prefix` (data set and split), `index` and `count`.
        layouts: Layouts that it can store; empty for all.
        extra: Extra of the distribution that it needs; empty for none.
        package: Module that the extra installs.
        can_gzip: True if `--gzip` compresses its files.
        can_be_empty: True if a shard may have no records. Readers fail at an empty one otherwise.
        has_index: True if shards have an index file.
        has_random_access: True if records are read by number without a read of those before.
        has_png_masks: True if masks of objects may be PNGs.
        tfds_format: Format of the files in TFDS's dataset_info.json; empty if TFDS does not read them.
    """

    name: str
    module: str
    file: str
    layouts: tuple[str, ...] = ()
    extra: str = ""
    package: str = ""
    can_gzip: bool = False
    can_be_empty: bool = True
    has_index: bool = True
    has_random_access: bool = True
    has_png_masks: bool = True
    tfds_format: str = ""

    @property
    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    def file_name(self, prefix: str, index: int, count: int) -> str:
        """Return the name of shard `index` of `count`.

        >>> CONTAINERS["tfrecord"].file_name("coco-train", 3, 128)
        'coco-train.tfrecord-00003-of-00128'
        """
        return self.file.format(prefix=prefix, index=index, count=count)

    def file_pattern(self, prefix: str) -> str:
        """Return the regular expression of names of shards, compressed or not, with the groups `index` and `count`.

        Args:
            prefix: Regular expression of the name of the data set and the split.
        """
        parts = iter(_NUMBER.split(self.file.removeprefix("{prefix}")))
        pattern = prefix + re.escape(next(parts))
        for name, digits, text in zip(parts, parts, parts, strict=True):
            pattern += rf"(?P<{name}>\d{{{digits},}}){re.escape(text)}"
        return pattern + r"(?:\.gz)?" * self.can_gzip


CONTAINERS = {
    row.name: row
    for row in (
        ContainerRow(
            TFRECORD,
            "recordmill.transforms.containers.tfrecord",
            "{prefix}.tfrecord-{index:05d}-of-{count:05d}",
            can_gzip=True,
            tfds_format="tfrecord",
        ),
        ContainerRow(
            "parquet",
            "recordmill.transforms.containers.parquet",
            "{prefix}-{index:05d}-of-{count:05d}.parquet",
            layouts=("detection", "classification", "table"),
            extra="parquet",
            package="pyarrow",
            has_index=False,
            has_png_masks=False,
        ),
        ContainerRow(
            "webdataset",
            "recordmill.transforms.containers.webdataset",
            "{prefix}-{index:06d}.tar",
            layouts=("detection", "classification"),
            can_be_empty=False,
            has_png_masks=False,
        ),
        ContainerRow(
            "arrayrecord",
            "recordmill.transforms.containers.arrayrecord",
            "{prefix}.array_record-{index:05d}-of-{count:05d}",
            extra="arrayrecord",
            package="array_record",
            has_index=False,
            tfds_format="array_record",
        ),
    )
}
