"""What verify asks of shards."""

import msgspec
import pytest

from recordmill.pipelines.verify import expected_shards
from tests.transforms.metadata.test_describe_split import SPLIT
from tests.transforms.verify.test_check_folder import write


@pytest.mark.parametrize(("boxes", "inside"), [("clip", True), ("keep", False)])
def test_boxes_that_were_kept_as_they_came_may_lie_outside(tmp_path, boxes, inside):
    recipe = msgspec.structs.replace(SPLIT.recipe, options={**SPLIT.recipe.options, "boxes": boxes})
    write(tmp_path, msgspec.structs.replace(SPLIT, recipe=recipe))
    expected = expected_shards(str(tmp_path))
    assert [(shard.path, shard.split, shard.info, shard.boxes_inside) for shard in expected] == [
        (str(tmp_path / shard.file), "train", shard, inside) for shard in SPLIT.shards
    ]
