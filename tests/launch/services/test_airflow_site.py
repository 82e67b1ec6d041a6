"""A site's settings, read from environment variables."""

import re

import pytest

from recordmill.launch.services.airflow_site import BeamSite, DataflowSite, beam_site, dataflow_site
from recordmill.schemas.errors import ConfigError

BEAM = {"RECORDMILL_PYTHON": "/opt/recordmill/bin/python", "RECORDMILL_OUTPUT_ROOT": "/data/runs"}
DATAFLOW = {
    "RECORDMILL_PYTHON": "/opt/recordmill/bin/python",
    "RECORDMILL_OUTPUT_ROOT": "gs://records/runs",
    "RECORDMILL_TEMPLATES": "gs://templates",
    "RECORDMILL_PROJECT": "p",
    "RECORDMILL_REGION": "europe-west4",
    "RECORDMILL_TEMP_LOCATION": "gs://temporary/t",
    "RECORDMILL_SUBNETWORK": "s",
}
SITE = beam_site("recordmill_coco", BEAM)
CLOUD = dataflow_site("recordmill_coco_dataflow", DATAFLOW)


def test_settings_have_defaults():
    assert BeamSite(python="/opt/recordmill/bin/python", output_root="/data/runs") == SITE
    assert (SITE.runner, SITE.retries, SITE.retry_s, SITE.timeout_h, SITE.schedule) == (
        "DirectRunner",
        3,
        60,
        24.0,
        None,
    )
    assert (CLOUD.public_ips, CLOUD.deferrable, CLOUD.staging_location) == (False, False, "gs://temporary/t/staging")
    assert (SITE.connection, CLOUD.connection) == (None, "google_cloud_default")


def test_every_setting_is_read():
    common = {
        "RECORDMILL_COCO_SCHEDULE": "@daily",
        "RECORDMILL_COCO_PARAMS": '{"images": ["/i"]}',
        "RECORDMILL_RETRIES": "5",
        "RECORDMILL_RETRY_SECONDS": "10",
        "RECORDMILL_TIMEOUT_HOURS": "0.5",
        "RECORDMILL_RUN_TIMEOUT_HOURS": "1",
    }
    common["RECORDMILL_CONNECTION"] = "google"
    limits = {"retries": 5, "retry_s": 10, "timeout_h": 0.5, "run_timeout_h": 1, "connection": "google"}
    read = {"schedule": "@daily", "params": {"images": ["/i"]}, **limits}
    more = {"RECORDMILL_RUNNER": "PortableRunner", "RECORDMILL_BEAM_OPTIONS": '{"job_endpoint": "localhost:8099"}'}
    assert beam_site("recordmill_coco", BEAM | common | more) == BeamSite(
        python="/opt/recordmill/bin/python",
        output_root="/data/runs",
        runner="PortableRunner",
        beam_options={"job_endpoint": "localhost:8099"},
        **read,
    )
    more = {
        "RECORDMILL_IMAGE": "i:1",
        "RECORDMILL_SERVICE_ACCOUNT": "a@b",
        "RECORDMILL_NETWORK": "n",
        "RECORDMILL_STAGING_LOCATION": "gs://staging",
        "RECORDMILL_PUBLIC_IPS": "True",
        "RECORDMILL_KMS_KEY": "k",
        "RECORDMILL_LABELS": '{"team": "vision"}',
        "RECORDMILL_DEFERRABLE": "true",
    }
    assert dataflow_site("recordmill_coco", DATAFLOW | common | more) == DataflowSite(
        python="/opt/recordmill/bin/python",
        output_root="gs://records/runs",
        templates="gs://templates",
        project="p",
        region="europe-west4",
        temp_location="gs://temporary/t",
        staging_location="gs://staging",
        image="i:1",
        service_account="a@b",
        network="n",
        subnetwork="s",
        public_ips=True,
        kms_key="k",
        labels={"team": "vision"},
        deferrable=True,
        **read,
    )
    assert beam_site("recordmill_folder", BEAM | common).schedule is None


@pytest.mark.parametrize(
    ("read", "settings", "told"),
    [
        (beam_site, {}, "RECORDMILL_PYTHON is missing; RECORDMILL_OUTPUT_ROOT is missing"),
        (
            beam_site,
            BEAM | {"RECORDMILL_OUTPUT_ROOT": "runs"},
            "RECORDMILL_OUTPUT_ROOT=runs must be absolute, or begin",
        ),
        (beam_site, BEAM | {"RECORDMILL_RETRIES": "-1"}, "RECORDMILL_RETRIES=-1 must be a number, 0 or more"),
        (beam_site, BEAM | {"RECORDMILL_COCO_PARAMS": "[1]"}, "RECORDMILL_COCO_PARAMS must be a JSON object"),
        (beam_site, BEAM | {"RECORDMILL_RUNNER": "DataflowRunner"}, "Dataflow's jobs are recordmill_dataflow.py's"),
        (beam_site, BEAM | {"RECORDMILL_RUNNER": "dataflow"}, "Dataflow's jobs are recordmill_dataflow.py's"),
        (
            beam_site,
            BEAM | {"RECORDMILL_BEAM_OPTIONS": '{"runner": "x"}'},
            "BEAM_OPTIONS: runner is not to be had there",
        ),
        (dataflow_site, DATAFLOW | {"RECORDMILL_OUTPUT_ROOT": "/data"}, "ROOT=/data must begin with gs://"),
        (dataflow_site, DATAFLOW | {"RECORDMILL_REGION": " "}, "RECORDMILL_REGION is missing"),
        (dataflow_site, DATAFLOW | {"RECORDMILL_DEFERRABLE": "yes"}, "DEFERRABLE=yes must be true or false"),
        (dataflow_site, DATAFLOW | {"RECORDMILL_SUBNETWORK": ""}, "RECORDMILL_SUBNETWORK is missing"),
        (dataflow_site, DATAFLOW | {"RECORDMILL_LABELS": '{"Team": "a b"}'}, "Team=a b is no label"),
    ],
)
def test_settings_that_are_wrong_are_named(read, settings, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        read("recordmill_coco", settings)
