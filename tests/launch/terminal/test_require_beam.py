"""A command that lacks an extra of the distribution names it, before it reads or writes anything."""

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.pipelines.formats import FORMATS
from recordmill.pipelines.verbs import VERBS

ARGUMENTS = {
    "convert": ["--images", "i", "--instances", "x.json", "--output", "o"],
    "extract": ["o", "d"],
    "repack": ["o", "p", "--container", "parquet"],
    "seal": ["o"],
    "verify": ["o"],
}
DATAFLOW = ["--", "--runner=DataflowRunner", "--project=p-12345", "--region=us-east1", "--temp_location=gs://b"]


def refusal(outcome) -> str:
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    return line


@pytest.mark.parametrize("format_", FORMATS)
def test_conversion_needs_beam(format_, recordmill, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    words = ARGUMENTS["convert"] if format_ == "coco" else ["d", "--format", format_, "--output", "o"]
    assert (
        refusal(recordmill("convert", *words))
        == 'recordmill: convert needs the extra beam. Run: pip install "recordmill[beam]"'
    )


@pytest.mark.parametrize("words", [["x"], ["x", "y"]])
def test_recognition_of_a_data_set_needs_beam(words, recordmill, tmp_path, monkeypatch):
    """It imports Arrow, which comes with Beam."""
    monkeypatch.chdir(tmp_path)
    for module in ("apache_beam", "recordmill.pipelines.recognise"):
        monkeypatch.setitem(sys.modules, module, None)
    refused = recordmill("convert", *words, "--output", "o")
    assert refusal(refused) == 'recordmill: convert needs the extra beam. Run: pip install "recordmill[beam]"'


@pytest.mark.parametrize("verb", sorted(name for name, verb in VERBS.items() if verb.runs_beam))
def test_verb_that_runs_pipeline_needs_beam(verb, recordmill, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert (
        refusal(recordmill(verb, *ARGUMENTS[verb]))
        == f'recordmill: {verb} needs the extra beam. Run: pip install "recordmill[beam]"'
    )


def test_verify_without_tensorflow_names_missing_checks(copy_converted, tmp_path, recordmill, monkeypatch):
    copy_converted(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    outcome = recordmill("verify", tmp_path)
    assert (outcome.code, "TensorFlow is not installed" in outcome.out) == (0, True)
    assert "report.html was not checked" in outcome.out
    assert 'pip install "recordmill[tensorflow]"' in refusal(recordmill("verify", tmp_path, "--check", "tensorflow"))


@pytest.mark.parametrize("is_checking", [True, False])
def test_checking_leaves_gpus_alone(tmp_path, monkeypatch, is_checking):
    (tmp_path / "tensorflow.py").write_text("constant = int")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    del sys.modules["tensorflow"]
    for name in ("CUDA_VISIBLE_DEVICES", "TF_ENABLE_ONEDNN_OPTS"):
        monkeypatch.setenv(name, "")
        del os.environ[name]
    require_tensorflow("verify", is_checking)
    variables = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("TF_ENABLE_ONEDNN_OPTS")
    assert variables == (("-1", "0") if is_checking else (None, None))


def test_clone_on_the_path_is_not_installed(recordmill, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))
    cure = f"pip install --no-deps {Path(__file__).parents[3]}"
    text = f"recordmill: Recordmill is not installed for {sys.executable}: {cure}"
    assert refusal(recordmill("convert", *ARGUMENTS["convert"])) == text


@pytest.mark.parametrize("verb", ["convert", "verify"])
def test_dataflow_needs_google_s_clients(verb, recordmill, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam.runners.dataflow.internal.apiclient", None)
    outcome = recordmill(verb, *ARGUMENTS[verb], *DATAFLOW)
    assert refusal(outcome) == 'recordmill: DataflowRunner needs the extra gcp. Run: pip install "recordmill[gcp]"'
