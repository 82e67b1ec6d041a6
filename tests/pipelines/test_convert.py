"""Tests for the steps that all conversions share."""

import apache_beam as beam
import pytest

from recordmill.pipelines import folder
from recordmill.pipelines.convert import job_limits
from recordmill.pipelines.gathered import Gathered
from recordmill.schemas.rejects import Metric
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.folder_options import FolderOptions
from recordmill.transforms.user_samples.record_options import RecordOptions
from tests.beam_pipeline import Pipeline
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

    with Pipeline() as p:
        job._replace(gather=gather).write(p, job.recipes())
    split = manifest_of(tmp_path / "out")["splits"]["train"]
    assert "a warning of the toy" in split["warnings"]
    assert split["images"]["emptied"] == 7


COCO = {"images": "i", "instances": "a.json", "output": "o"}
FLAG, OF_READ = "--allow-empty", ("the class map", "--allow-empty to ReadDataset")


def samples(**options) -> RecordOptions:
    return RecordOptions(output="o").with_source(CocoOptions(**COCO, **options), ("train",))


@pytest.mark.parametrize(
    ("options", "class_maps"),
    [
        (CocoOptions(**COCO), {}),
        (CocoOptions(**COCO, class_map="m.csv"), {"": ("--class-map m.csv", FLAG)}),
        (CocoOptions(**COCO, class_map="m.csv", allow_empty=True), {}),
        (FolderOptions(data="i", output="o", class_map="m.csv"), {"": ("--class-map m.csv", "")}),
        (RecordOptions(output="o"), {"": OF_READ}),
        (RecordOptions(output="o", layout="classification"), {"": ("the class map", "")}),
        (samples(), {"": OF_READ}),
        (samples(allow_empty=True), {}),
    ],
)
def test_class_maps_may_drop_all_labels_by_a_flag(options, class_maps):
    assert job_limits(options, ("train",), "").class_maps == class_maps
