"""Inputs of a Flatten have one coder: otherwise Flink refuses a submitted job."""

import pytest
from apache_beam.portability.common_urns import primitives

from recordmill.launch.command_line.parser import parse
from tests.beam_pipeline import Pipeline

HALVES = "--split train=0.5,val=0.5"
PLAIN = "convert --images {images} --instances {instances} --output {out}"
ALL = PLAIN + " --keypoints {keypoints} --captions {captions} --panoptic {panoptic} --panoptic-masks {panoptic_masks}"
FOLDER = "convert {images} --format folder --output {out} --label-from name"
MODEL = "--model mobilenet --input-size 32x32 --weights none"
MAP = "--class-map {class_map}"
IMAGE_ROWS = f"{{images}} --images {{classes}} --image-column image --label label {HALVES} --output {{out}}"
COMMANDS = {
    "every kind by name and group": f"{ALL} --match name {HALVES} --group-from [0-9] --caption-text tfidf {MAP}",
    "folder by group": f"{FOLDER} {HALVES} --group-from [0-9] --exclude {{groups}} --duplicates drop",
    "features of rows": f"convert --format table {IMAGE_ROWS} {MODEL}",
    "stratified, Beam's sink": f"{FOLDER} {HALVES} --stratify --writer beam {MAP}",
    "texts of two columns, Beam's sink": (
        f"convert {{objects}} --format table --label shape --output {{out}} --key object {HALVES} --stratify"
        " --writer beam --text-column image,caption --text counts"
    ),
}
"""These have every Flatten that a pipeline may have, with each of its inputs."""


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_flattened_inputs_have_one_coder(sample, tmp_path, line):
    groups = tmp_path / "groups.csv"
    groups.write_text("file_name,group\n1.jpg,a\n")
    class_map = tmp_path / "map.csv"
    class_map.write_text("square,box\n")
    paths = {**sample._asdict(), "out": tmp_path / "out", "groups": groups, "class_map": class_map}
    command = parse(line.format(**paths).split())
    job = command.format.load("prepare")(command.options)
    p = Pipeline()
    job.write(p, job.recipes())
    report = Pipeline()
    job.report(report, job.recipes(), "plan.json")
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
        assert len(coders) >= (1 if command.format.name == "table" and not command.options.given("model") else 2)
        assert {name for name, coder_names in coders.items() if len(coder_names) > 1} == set()
