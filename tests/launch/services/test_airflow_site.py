"""A site's settings, read from environment variables."""

import re
from datetime import date

import pytest

from recordmill.launch.services.airflow_site import BeamSite, DataflowSite, beam_site, dataflow_site
from recordmill.launch.services.airflow_verification import Verification
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
        "RECORDMILL_COCO_START": "2026-11-01",
        "RECORDMILL_COCO_CATCHUP": "true",
        "RECORDMILL_POOL": "conversions",
        "RECORDMILL_ON_FAILURE": "alerts.page",
        "RECORDMILL_LATEST": "true",
        "RECORDMILL_KEEP": "7",
        "RECORDMILL_KEEP_DRY_RUN": "true",
        "RECORDMILL_LINEAGE": "true",
        "RECORDMILL_DEFERRABLE": "true",
        "RECORDMILL_VERIFY_OPTIONS": '{"check": "hashes", "sample": 0.1}',
    }
    common["RECORDMILL_CONNECTION"] = "google"
    limits = {"retries": 5, "retry_s": 10, "timeout_h": 0.5, "run_timeout_h": 1, "connection": "google"}
    read = {"schedule": "@daily", "params": {"images": ["/i"]}, **limits}
    read |= {"start": date(2026, 11, 1), "catchup": True, "pool": "conversions", "on_failure": "alerts.page"}
    read |= {"latest": True, "keep": 7, "keep_dry_run": True, "lineage": True, "deferrable": True}
    read["verification"] = Verification(options={"check": "hashes", "sample": 0.1})
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
        **read,
    )
    assert beam_site("recordmill_folder", BEAM | common).schedule is None


@pytest.mark.parametrize(
    ("read", "settings", "told"),
    [
        (beam_site, {}, "RECORDMILL_OUTPUT_ROOT is missing; RECORDMILL_PYTHON is missing"),
        (dataflow_site, DATAFLOW | {"RECORDMILL_PYTHON": ""}, "RECORDMILL_PYTHON is missing"),
        (beam_site, BEAM | {"RECORDMILL_KEEP": "0"}, "RECORDMILL_KEEP=0 must be an integer, 1 or more"),
        (beam_site, BEAM | {"RECORDMILL_KEEP_DRY_RUN": "true"}, "does nothing without RECORDMILL_KEEP"),
        (beam_site, BEAM | {"RECORDMILL_COCO_START": "1.11."}, "RECORDMILL_COCO_START=1.11. must be a day"),
        (beam_site, BEAM | {"RECORDMILL_COCO_CATCHUP": "true"}, "RECORDMILL_COCO_START is missing"),
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
