"""Input of the shards of a conversion."""

from typing import Any, NamedTuple

from apache_beam.pvalue import AsDict, AsList, AsSingleton, PCollection

from recordmill.schemas.inputs.splits import Division


class Gathered(NamedTuple):
    """Input of the shards."""

    # (BlockKey, packed Block) of complete Blocks, see `recordmill.transforms.shards.plan_blocks`; or Spill for rows.
    blocks: PCollection
    labels: PCollection  # one LabelMap, of the requested classes
    table: PCollection  # one FeatureTable: features of a record
    encoders: PCollection | None = None  # TextEncoder; None if no texts are encoded
    division: Division | AsSingleton | None = None  # split assignment; None without groups
    changes: PCollection | None = None  # (split, contents of changes-SPLIT.jsonl); None without --add
    replaced: PCollection | None = None  # (split, shard, file name), see Grown; None without --add

    @property
    def sides(self) -> dict[str, Any]:
        """Side inputs of the steps that write metadata."""
        sides = {"labels": AsSingleton(self.labels), "table": AsSingleton(self.table)}
        return sides if self.encoders is None else sides | {"encoders": AsList(self.encoders)}

    @property
    def lists(self) -> dict[str, Any]:
        """Side inputs of the step that writes the manifest, besides `sides`."""
        return {} if self.changes is None else {"changes": AsDict(self.changes)}
