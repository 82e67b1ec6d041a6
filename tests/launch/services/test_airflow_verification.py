"""Where and how records are read back, from environment variables."""

import re

import pytest

from recordmill.launch.command_line.parser import parse
from recordmill.launch.services.airflow_site import beam_site, dataflow_site
from recordmill.launch.services.airflow_verification import Pod, Verification
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.plan_report import Check
from tests.launch.services.test_airflow_site import BEAM, DATAFLOW

IMAGE = '{"image": "h/recordmill-verify:1"}'


def of(read=dataflow_site, **settings: str) -> Verification:
    environment = BEAM if read is beam_site else DATAFLOW
    return read(
        "recordmill_coco", environment | {f"RECORDMILL_{name}": value for name, value in settings.items()}
    ).verification


def test_the_worker_verifies_by_tensorflow_unless_told_otherwise():
    assert of() == of(beam_site) == Verification(place="worker", options={}, pod=None)
    assert parse(of().arguments("gs://b/x")).options.thoroughness is Check.TENSORFLOW


@pytest.mark.parametrize("place", ["pod", "dataflow"])
def test_images_have_no_tensorflow_and_no_worker_is_needed(place):
    found = of(VERIFY=place, POD=IMAGE, PYTHON="")
    assert found.values("gs://b/x") == {"folder": "gs://b/x", "check": "decode"}
    assert of(VERIFY=place, POD=IMAGE, VERIFY_OPTIONS='{"check": "hashes", "sample": 0.1}').arguments("gs://b/x") == [
        *("verify", "gs://b/x", "--check=hashes", "--sample=0.1", "--progress=plain")
    ]


def test_a_pod_is_as_it_is_said_to_be():
    assert of(VERIFY="pod", POD=IMAGE).pod == Pod(image="h/recordmill-verify:1", cpu="2", memory="4Gi")
    said = '{"image": "i", "namespace": "n", "service_account": "s", "cpu": "1", "memory": "2Gi", "config_file": "/c"}'
    assert of(beam_site, VERIFY="pod", POD=said).pod == Pod(
        image="i", namespace="n", service_account="s", cpu="1", memory="2Gi", config_file="/c"
    )


def test_nothing_verifies():
    assert of(VERIFY="none", PYTHON="").place == "none"


@pytest.mark.parametrize(
    ("read", "settings", "told"),
    [
        (beam_site, {"VERIFY": "gpu"}, "RECORDMILL_VERIFY=gpu is none of worker, pod, dataflow, none"),
        (beam_site, {"VERIFY": "dataflow"}, "RECORDMILL_VERIFY=dataflow is for the DAGs of recordmill_dataflow.py"),
        (beam_site, {"VERIFY": "none", "PYTHON": ""}, "RECORDMILL_PYTHON is missing"),
        (dataflow_site, {"VERIFY": "pod"}, "RECORDMILL_POD is missing"),
        (dataflow_site, {"VERIFY": "pod", "POD": '{"imag": "i"}'}, "RECORDMILL_POD must be a JSON object"),
        (dataflow_site, {"VERIFY": "pod", "POD": '{"image": "i", "cpu": 2}'}, "Expected `str"),
        (dataflow_site, {"VERIFY_OPTIONS": '{"sampel": 1}'}, "RECORDMILL_VERIFY_OPTIONS: unknown flag --sampel"),
        (dataflow_site, {"VERIFY_OPTIONS": '{"check": "all"}'}, "RECORDMILL_VERIFY_OPTIONS: --check 'all' is none"),
        (dataflow_site, {"VERIFY_OPTIONS": '{"sample": 2}'}, "RECORDMILL_VERIFY_OPTIONS: --sample 2.0 must be"),
        (
            dataflow_site,
            {"VERIFY": "dataflow", "VERIFY_OPTIONS": '{"check": "tensorflow", "tolerance": 0.1, "recompute": 1}'},
            "RECORDMILL_VERIFY_OPTIONS: verify has no parameter tolerance; it has check, folder, sample, workers",
        ),
        (
            dataflow_site,
            {"VERIFY": "dataflow", "VERIFY_OPTIONS": '{"check": "tensorflow"}'},
            "RECORDMILL_VERIFY_OPTIONS: check 'tensorflow' is none of hashes, decode",
        ),
    ],
)
def test_what_is_wrong_is_named(read, settings, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        of(read, **settings)
