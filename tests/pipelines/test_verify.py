"""What verify asks of shards."""

import msgspec
import pytest

from recordmill.pipelines.options.verify_options import VerifyOptions
from recordmill.pipelines.verify import expected_shards
from recordmill.schemas.errors import ConfigError
from tests.transforms.metadata.test_describe_split import SPLIT
from tests.transforms.verify.test_check_folder import write


@pytest.mark.parametrize("alone", [{"images": ("pictures",)}, {"tolerance": 0.0}])
def test_what_is_of_recomputing_is_given_with_it(alone):
    with pytest.raises(ConfigError, match=f"--{next(iter(alone))} would do nothing without --recompute"):
        VerifyOptions(folder="out", **alone)
    VerifyOptions(folder="out", recompute=1, **alone)


@pytest.mark.parametrize(("boxes", "inside"), [("clip", True), ("keep", False)])
def test_boxes_that_were_kept_as_they_came_may_lie_outside(tmp_path, boxes, inside):
    recipe = msgspec.structs.replace(SPLIT.recipe, options={**SPLIT.recipe.options, "boxes": boxes})
    write(tmp_path, msgspec.structs.replace(SPLIT, recipe=recipe))
    expected = expected_shards(VerifyOptions(folder=str(tmp_path)))
    assert [(shard.path, shard.split, shard.info, shard.boxes_inside) for shard in expected] == [
        (str(tmp_path / shard.file), "train", shard, inside) for shard in SPLIT.shards
    ]
