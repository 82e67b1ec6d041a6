"""What is flattened has one coder: Flink refuses to unite others, when the job has been submitted."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.common_urns import primitives

from recordmill.launch.command_line.parser import parse
from recordmill.launch.verbs import coco, embed, folder, table
from tests.conftest import coco_flags


def commands(sample, out) -> dict[str, list[str]]:
    """One for each form that a pipeline has: what is only a value of a step, such as a layout, makes no other."""
    annotations = [f"--{kind}={getattr(sample, kind)}" for kind in ("keypoints", "captions", "panoptic")]
    masks = f"--panoptic-masks={sample.panoptic_masks}"
    plain = coco_flags(sample, out)
    images = ["folder", "--images", sample.images, "--output", str(out), "--label-from", "name"]
    model = ["--model", "mobilenet-v2", "--input-size", "32x32"]
    groups = ["--split", "train=0.5,val=0.5", "--group-from", "[0-9]"]
    listed = out.parent / "groups.csv"
    listed.write_text("file_name,group\n1.jpg,a\n")
    of_pictures = ["table", "--rows", sample.pictures, "--images", sample.classes, "--image-column", "image"]
    of_pictures += ["--label", "label", "--split", "train=0.5,val=0.5", "--output", str(out)]
    rows = ["table", "--rows", sample.objects, "--label", "shape", "--output", str(out)]
    return {
        "coco": plain,
        "every kind by name and group": [
            *(*plain, *annotations, masks, "--match", "name", *groups, "--caption-text", "tfidf")
        ],
        "no list, Beam's sink": [*plain, *annotations, masks, "--no-list", "--writer", "beam", "--num-shards", "2"],
        "folder by group": [*images, *groups],
        "by a list of groups": [*plain, "--split", "train=0.5,val=0.5", "--groups", listed],
        "stratified by a list of groups": [*images, *groups[:2], "--stratify", "--groups", listed],
        "features of random weights": ["embed", *images[1:], *model, "--weights", "none"],
        "features, Beam's sink": ["embed", *images[1:], *model, "--weights", "none", "--writer", "beam"],
        "features of rows": ["embed", *of_pictures[1:], *model, "--weights", "none"],
        "stratified, Beam's sink": [*images, "--split", "train=0.5,val=0.5", "--stratify", "--writer", "beam"],
        "table": rows,
        "table of pictures and texts": [*of_pictures, "--text-column", "description", "--text", "counts"],
        "texts of two columns": [*rows, "--text-column", "image,caption", "--text", "counts"],
        "table, Beam's sink": [
            *(*rows, "--key", "object", "--split", "train=0.5,val=0.5", "--stratify", "--writer", "beam")
        ],
    }


KINDS = (
    "coco",
    "every kind by name and group",
    "no list, Beam's sink",
    "folder by group",
    "by a list of groups",
    "stratified by a list of groups",
    "features of random weights",
    "features, Beam's sink",
    "features of rows",
    "stratified, Beam's sink",
    "table",
    "table of pictures and texts",
    "texts of two columns",
    "table, Beam's sink",
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_flattened_has_one_coder(sample, tmp_path, kind):
    command = parse([str(word) for word in commands(sample, tmp_path / "out")[kind]])
    conversion = {"coco": coco, "folder": folder, "embed": embed, "table": table}[command.verb].conversion(
        command.options
    )
    p = beam.Pipeline(options=PipelineOptions([]))
    conversion.write(p, conversion.recipes())
    report = beam.Pipeline(options=PipelineOptions([]))
    conversion.report(report, "report.json")
    for pipeline in (p, report):
        components = pipeline.to_runner_api().components
        coders = {
            transform.unique_name: {
                components.coders[components.pcollections[name].coder_id].SerializeToString()
                for name in transform.inputs.values()
            }
            for transform in components.transforms.values()
            if transform.spec.urn == primitives.FLATTEN.urn
        }
        assert len(coders) >= (1 if command.verb == "table" else 3)
        assert {name for name, found in coders.items() if len(found) > 1} == set()
