"""What Airflow's operators are given; tests/airflow has the same with Airflow."""

import hashlib
import re
from datetime import datetime
from types import SimpleNamespace

import pytest

from recordmill.launch.command_line.parameters import COMMANDS, command_line, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.launch.flat import from_flat
from recordmill.launch.services import airflow_arguments
from recordmill.launch.services.airflow_arguments import (
    beam_options,
    command_values,
    input_uris,
    job_name,
    launch_body,
    manifest_facts,
    param_schemas,
    resolved,
    verify_command,
)
from recordmill.launch.services.airflow_site import BeamSite, beam_site, dataflow_site
from recordmill.launch.services.template_metadata import metadata
from recordmill.schemas.errors import ConfigError
from tests.launch.services.test_airflow_site import BEAM, CLOUD, DATAFLOW, SITE

INPUTS = {"images": ["gs://b/images"], "instances": ["gs://b/a.json"]}
WHEN = datetime(2026, 11, 21, 2)
RUN = SimpleNamespace(run_after=WHEN, logical_date=datetime(2026, 11, 20, 2))

# Other than the default, for each parameter that a run may set.
GIVEN = {
    "images": ["gs://bucket/images", "gs://bucket/images.zip"],
    "instances": ["gs://bucket/a.json"],
    "keypoints": ["gs://bucket/k.json"],
    "captions": ["gs://bucket/c.json"],
    "panoptic": ["gs://bucket/p.json"],
    "panoptic_masks": ["gs://bucket/masks"],
    "stuff": ["gs://bucket/s.json"],
    "image_info": ["gs://bucket/i.json"],
    "label_files": ["gs://bucket/labels.csv"],
    "output": "gs://bucket/out",
    "no_list": True,
    "no_crowd": True,
    "gzip": True,
    "overwrite": True,
    "stratify": True,
    "name": "pets",
    "split": "val",
    "writer": "beam",
    "layout": "tfds",
    "masks": "both",
    "boxes": "keep",
    "bbox_format": "xyxy",
    "match": "suffix",
    "check": "header",
    "format": "png",
    "label_from": "name",
    "label_separator": "-",
    "path_column": "path",
    "label_column": "label",
    "split_column": "split",
    "classes": "cat,dog",
    "categories": "cat,traffic light",
    "shard_size": "200MB",
    "num_shards": 8,
    "examples_per_shard": 100,
    "max_side": 512,
    "jpeg_quality": 80,
    "duplicates": "leakage",
    "workers": 4,
    "seed": 3,
    "split_seed": 5,
    "group_from": "^[a-z]+",
    "groups": "gs://bucket/groups.csv",
    "min_area": 2.5,
    "max_rejects": 0.2,
    "caption_text": "counts",
    "text_features": 9,
    "min_df": "2",
    "ngrams": "1,2",
    "no_lower": True,
    "stop_words": ["gs://bucket/stop.txt"],
    "fit_split": "val",
    "encoders": ["gs://bucket/other"],
    "text_names": "index=i,value=v",
    "text": "counts",
    "text_column": "words",
    "rows": ["gs://bucket/rows-*.csv"],
    "columns": "a,b",
    "key": "id",
    "class_column": "species",
    "schema": "gs://bucket/schema.json",
    "default": "a=0",
    "rename": "a=b",
    "encoding": "latin-1",
    "group_column": "patient",
    "image_column": "path",
    "raw_size": "224x224",
    "model": "gs://bucket/model.keras",
    "weights": "none",
    "layer": "mean",
    "pool": "avg",
    "input_size": "64x64",
    "preprocess": "unit",
    "resize": "nearest",
    "batch": 8,
    "dtype": "float16",
}
NO_MACHINES = dict.fromkeys(("machine_type", "launcher_machine_type", "disk_size_gb"))


def accept(monkeypatch) -> None:
    """Let parameters be given together that contradict each other."""
    monkeypatch.setattr(airflow_arguments, "parse", lambda typed: None)


def given(command: str) -> dict:
    layouts = {"folder": "classification", "embed": "features", "table": "table"}
    more = {"layout": layouts[command]} if command in layouts else {}
    return {name: (GIVEN | more)[name] for name in parameters(command)}


def test_a_schema_of_each_kind():
    schemas = param_schemas("coco", SITE)
    assert set(schemas) == {*parameters("coco")}
    path = schemas["output"]["pattern"]
    assert schemas["images"] == {
        "title": "images",
        "description": parameters("coco")["images"].option.help,
        "type": "array",
        "items": {"type": "string", "pattern": path},
        "minItems": 1,
    }
    optional_list = {"type": ["null", "array"], "items": {"type": "string", "pattern": path}, "default": None}
    assert schemas["instances"].items() >= optional_list.items()
    assert schemas["gzip"].items() >= {"type": "boolean", "default": False}.items()
    assert schemas["layout"].items() >= {"enum": ["detection", "keras", "tfds"], "default": "detection"}.items()
    # Of an option that may be left out, Airflow holds null against the list, too.
    formats = [None, "xywh", "xyxy", "rel-xywh", "rel-xyxy"]
    assert schemas["bbox_format"].items() >= {"enum": formats, "default": None}.items()
    shards = {"type": ["null", "integer"], "minimum": 1, "maximum": 99_999, "default": None, "title": "num shards"}
    assert schemas["num_shards"].items() >= shards.items()
    assert schemas["max_rejects"].items() >= {"type": "number", "minimum": 0, "maximum": 1, "default": 0.01}.items()
    assert schemas["name"].items() >= {"type": "string", "default": "coco"}.items()
    assert "needs panoptic_masks" in schemas["panoptic"]["description"]
    assert schemas["output"]["description"].endswith("/data/runs")


def test_dataflow_has_params_of_its_own_and_reads_buckets_only():
    schemas = param_schemas("folder", CLOUD)
    own = set(schemas) - {*parameters("folder")}
    assert own == {"machine_type", "launcher_machine_type", "disk_size_gb", "max_workers", "flexrs"}
    pattern = schemas["output"]["pattern"]
    assert schemas["label_files"]["items"]["pattern"] == pattern
    assert not re.search(pattern, "/data/out")
    assert param_schemas("table", CLOUD)["schema"]["pattern"] == pattern


def test_a_sites_own_defaults():
    params = {"images": ["/i"], "num_shards": 4}
    schemas = param_schemas("coco", BeamSite(python="/p", output_root="/o", schedule="@daily", params=params))
    assert (schemas["images"]["default"], schemas["num_shards"]["default"]) == (["/i"], 4)
    with pytest.raises(ConfigError, match="no Param is called shards; coco has bbox_format, "):
        param_schemas("coco", BeamSite(python="/p", output_root="/o", params={"shards": 4}))
    with pytest.raises(ConfigError, match=r"scheduled runs \(@daily\) need defaults for images$"):
        param_schemas("coco", BeamSite(python="/p", output_root="/o", schedule="@daily"))


@pytest.mark.parametrize(
    "path", ["gs://b/x", "gs://b/{data_interval_start:%Y/%m/%d}/*", "gs://b/{logical_date:%Y-W%V}/{{1}}", "gs://b/ä b"]
)
def test_paths_may_have_dates(path):
    for site in (SITE, CLOUD):
        assert re.search(param_schemas("coco", site)["images"]["items"]["pattern"], path)


@pytest.mark.parametrize(
    "path",
    [
        *("gs://b/{x}", "gs://b/{ds}", "gs://b/{logical_date}", "gs://b/{logical_date:}", "gs://b/{logical_date:%Q}"),
        *("gs://b/{logical_date.__class__:%Y}", "gs://b/{0}", "gs://b/{logical_date!r:%Y}", "gs://b/{", "gs://b/}"),
        *("gs://b/{logical_date:%Y,%m}", "gs://b/a,gs://b/c", "b/x", "gs://", "gs://b/{logical_date:{x}}"),
    ],
)
def test_paths_that_are_refused(path):
    for site in (SITE, CLOUD):
        assert not re.search(param_schemas("coco", site)["images"]["items"]["pattern"], path)


def folder_of(params: dict, run: SimpleNamespace = RUN, dag_id: str = "recordmill_coco") -> str:
    return resolved("coco", dag_id, CLOUD, params, run)[1]


def test_a_run_has_a_folder_of_its_own():
    assert folder_of({}) == "gs://records/runs/recordmill_coco/20261121t020000"
    assert folder_of({"output": None}).endswith("/20261121t020000")
    assert folder_of({"output": "gs://b/x"}) == "gs://b/x"
    others = {
        folder_of({}, SimpleNamespace(run_after=WHEN.replace(microsecond=1))),
        folder_of({}, SimpleNamespace(run_after=WHEN.replace(second=1))),
        folder_of({}, dag_id="recordmill_coco_dataflow"),
    }
    assert len(others | {folder_of({})}) == 4


def test_a_run_fills_in_its_dates_in_paths_and_nowhere_else():
    day = "{logical_date:%Y/%m/%d}"
    params = {
        "images": [f"gs://b/{day}", "gs://c"],
        "instances": None,
        "group_from": "^[a-z]{3}",
        "output": f"gs://o/{day}",
    }
    given, folder = resolved("coco", "d", CLOUD, params, RUN)
    assert folder == "gs://o/2026/11/20"
    assert given == params | {"images": ["gs://b/2026/11/20", "gs://c"], "output": folder}


def test_addresses_of_inputs():
    params = {"rows": ["gs://b/{logical_date:%Y}/x/*.csv", "gs://b/rows-[0-9].csv", "gs://b/r.csv"], "text": "counts"}
    assert input_uris("table", BeamSite(output_root="/o", params=params)) == ["gs://b", "gs://b/r.csv"]
    params = {"images": ["/data/images"], "output": "gs://b/out"}
    assert input_uris("folder", BeamSite(output_root="/o", params=params)) == ["file:///data/images"]


@pytest.mark.parametrize(
    ("dag_id", "expected"),
    [
        ("recordmill_folder_dataflow", "recordmill-folder-dataflow-20261121t020000000007-12"),
        ("Mine.Pets__2", "mine-pets-2-20261121t020000000007-12"),
        ("2_pets", "r-2-pets-20261121t020000000007-12"),
        ("a" * 100, "a" * 38 + "-20261121t020000000007-12"),
        ("a" * 37 + "_" + "b" * 9, "a" * 37 + "-20261121t020000000007-12"),
    ],
)
def test_names_of_jobs(dag_id, expected):
    name = job_name(dag_id, WHEN.replace(microsecond=7), 12)
    assert name == expected
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_only_what_was_changed_is_set():
    defaults = {name: schema.get("default") for name, schema in param_schemas("coco", SITE).items()}
    assert command_values("coco", defaults | INPUTS, "/o") == {**INPUTS, "output": "/o"}
    changed = {"max_rejects": 0, "gzip": True, "seed": -1, "categories": "cat"}
    assert command_values("coco", defaults | INPUTS | changed, "/o") == {**INPUTS, **changed, "output": "/o"}


def test_what_contradicts_itself_is_refused():
    with pytest.raises(ConfigError, match="--num-shards and --shard-size contradict each other: give one"):
        command_values("coco", {**INPUTS, "num_shards": 8, "shard_size": "1GB"}, "/o")
    with pytest.raises(ConfigError, match="--shard-size"):
        command_values("coco", {**INPUTS, "shard_size": "large"}, "/o")
    with pytest.raises(ConfigError, match="--instances is missing"):
        command_values("coco", {"images": ["/i"]}, "/o")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_parameter_reaches_the_command(command, monkeypatch):
    """Through the operator's flags, and those of Dataflow's launcher."""
    accept(monkeypatch)
    values = command_values(command, given(command), "gs://bucket/out")
    assert set(values) >= set(given(command)) - {"layout"}
    typed = command_line(command, values)
    options = beam_options(command, values, SITE)
    flags = [
        f"--{name}={item}"
        for name, value in options.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    assert from_flat([*flags, "--labels=airflow-version=v3-3-2"]) == [*typed, "--", "--labels=airflow-version=v3-3-2"]
    params = {"max_workers": 3, "flexrs": False} | NO_MACHINES
    launch = launch_body(command, values, params, CLOUD, "job")["launchParameter"]
    flags = [f"--command={command}", *(f"--{name}={value}" for name, value in launch["parameters"].items())]
    assert from_flat(flags) == [*typed, "--"]


@pytest.mark.parametrize("command", COMMANDS)
def test_dataflow_takes_every_parameter(command, monkeypatch):
    """It refuses one that the template does not name, and a value that its regex does not match."""
    accept(monkeypatch)
    values = command_values(command, given(command), "gs://bucket/out")
    site = dataflow_site("d", DATAFLOW | {"RECORDMILL_IMAGE": "europe-docker.example/p/recordmill-coco:1"})
    params = {"max_workers": 3, "flexrs": False} | NO_MACHINES
    launch = launch_body(command, values, params, site, "job")["launchParameter"]
    regexes = {described["name"]: described["regexes"] for described in metadata(command)["parameters"]}
    assert launch["parameters"]["sdk_container_image"] == "europe-docker.example/p/recordmill-coco:1"
    for name, value in launch["parameters"].items():
        assert all(re.search(regex, value) for regex in regexes[name]), (name, value)


def test_options_of_the_site_go_to_beam():
    site = beam_site("d", BEAM | {"RECORDMILL_BEAM_OPTIONS": '{"job_endpoint": "h:1", "experiments": ["a", "b"]}'})
    assert beam_options("coco", {"gzip": True, "images": ["/i"]}, site) == {
        "command": "coco",
        "gzip": "true",
        "images": ["/i"],
        "job_endpoint": "h:1",
        "experiments": ["a", "b"],
    }


def test_the_request_has_nothing_that_was_not_said():
    params = {"max_workers": 20, "flexrs": False} | NO_MACHINES
    assert launch_body("coco", {"images": ["gs://b/a", "gs://b/c"], "gzip": True}, params, CLOUD, "job") == {
        "launchParameter": {
            "jobName": "job",
            "containerSpecGcsPath": "gs://templates/coco.json",
            "parameters": {"images": "gs://b/a,gs://b/c", "gzip": "true"},
            "environment": {
                "tempLocation": "gs://temporary/t",
                "stagingLocation": "gs://temporary/t/staging",
                "ipConfiguration": "WORKER_IP_PRIVATE",
                "subnetwork": "s",
                "maxWorkers": 20,
            },
        }
    }


def test_what_is_published_is_what_the_manifest_says(tmp_path, copy_converted):
    copy_converted(tmp_path / "out", "--num-shards", 3)
    data = (tmp_path / "out" / "manifest.json").read_bytes()
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("[!.]*.tfrecord-*"))
    assert manifest_facts(data, "gs://b/out") == {
        "folder": "gs://b/out",
        "name": "coco",
        "layout": "detection",
        "splits": {"train": {"records": 22, "images": 22, "rejected": 2, "shards": 3, "bytes": size}},
        "verified": True,
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
    }
    assert manifest_facts(data, "gs://b/out", verified=False)["verified"] is False
    with pytest.raises(ConfigError, match=r"gs://b/out/manifest.json is not a Recordmill manifest"):
        manifest_facts(data[:100], "gs://b/out/")


def test_verify_is_a_command_that_is_understood():
    python, *module, verb, folder, progress = verify_command(SITE, "/data/runs/x")
    assert (python, module) == (SITE.python, ["-m", "recordmill.launch.cli"])
    parsed = parse([verb, folder, progress])
    assert (parsed.verb, parsed.options.folder, parsed.terminal.progress) == ("verify", "/data/runs/x", "plain")
