"""Tests for the steps that all conversions share."""

import apache_beam as beam
import pytest

from recordmill.pipelines import folder
from recordmill.pipelines.convert import Gathered
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.rejects import Metric
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.folder_options import FolderOptions
from tests.conftest import draw_jpeg, manifest_of


def report(_: bytes, facts: FactsBuilder) -> None:
    facts.warn("train", "a warning of the toy")
    facts.count("train", Metric.EMPTIED, 7)


def test_facts_of_a_further_step_are_in_the_manifest(tmp_path):
    """The step only reports: no other line hands its Facts over."""
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        draw_jpeg(tmp_path / "images" / name)
    job = folder.prepare(FolderOptions(data=f"{tmp_path}/images", output=f"{tmp_path}/out"))

    def gather(p: beam.Pipeline) -> Gathered:
        p | "Once" >> beam.Impulse() | "Report" >> WithFacts(report)
        return job.gather(p)

    with beam.Pipeline() as p:
        job._replace(gather=gather).write(p, job.recipes())
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    assert "a warning of the toy" in split["warnings"]
    assert split["images"]["emptied"] == 7


def test_shards_of_two_splits_have_different_names(tmp_path):
    """The data set names the splits, so that no option could be refused."""
    (tmp_path / "cat").mkdir()
    draw_jpeg(tmp_path / "cat" / "1.jpg")
    job = folder.prepare(FolderOptions(data=f"{tmp_path}", output=f"{tmp_path}/out", classes=["cat"]))
    keras = job._replace(options=job.options.model_copy(update={"layout": "keras"}))
    with pytest.raises(ConfigError, match="the data set has train and val: convert each split to its own --output"):
        keras._replace(splits=("train", "val")).recipes()
    assert len(job._replace(splits=("train", "val")).recipes()) == len(keras.recipes()) + 1 == 2
