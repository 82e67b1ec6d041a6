"""A model in several processes gives what it gives in one."""

import pytest

from tests.conftest import draw_jpeg, manifest_of, read_examples
from tests.engines.output import files_of


@pytest.fixture
def classes(tmp_path):
    """`embed` on sixty pictures, one of which is broken, through random weights that each process makes for itself."""
    for number in range(60):
        draw_jpeg(tmp_path / "pictures" / ("cat", "dog")[number % 2] / f"{number}.jpg", colour=(4 * number, 0, 0))
    (tmp_path / "pictures" / "cat" / "broken.jpg").write_bytes(b"no picture")
    model = ["--model", "mobilenet-v2", "--weights", "none", "--input-size", "32x32", "--batch", "8"]
    flags = ["--split", "train=0.7,val=0.3", "--num-shards", "3", "--max-rejects", "0.1"]
    return ["embed", "--images", str(tmp_path / "pictures"), *model, *flags]


@pytest.mark.parametrize("engine", ["processes", "prism", "flink_local"])
def test_features_are_the_same_bytes(classes, engine, request, convert):
    reference = convert("reference", classes)
    assert len(manifest_of(reference)["splits"]["train"]["shards"]) == 3
    features = [example["feature"] for example in read_examples(reference, "train")]
    assert len({tuple(feature) for feature in features}) == len(features) > 30
    assert files_of(convert("engine", classes, request.getfixturevalue(engine))) == files_of(reference)
