"""A dry run for Dataflow says what the job would cost."""

import io

import msgspec
import pytest
from PIL import Image

from recordmill.launch.preflight.plan_costs import plan_costs
from recordmill.launch.runners.beam_options import beam_options
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.table_options import TableOptions
from recordmill.schemas.manifest import InputRows
from recordmill.schemas.plan_report import PlanReport
from tests.gcs_stand_in import running

PLAN = PlanReport(10**6, {}, 10**11, 700, {}, (), {}, 0, 0)


@pytest.fixture
def gcs(monkeypatch):
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.bucket_place = {"location": "US-EAST1", "storageClass": "NEARLINE"}
        yield server


def lines(*flags: str, plan: PlanReport = PLAN, **options) -> dict[str, str]:
    asked = FolderOptions(**{"images": ("gs://bucket/images",), "output": "gs://bucket/out"} | options)
    return dict(plan_costs(plan, asked, beam_options(["--runner=DataflowRunner", "--region=us-central1", *flags])))


def test_workers_are_as_many_as_there_may_be(gcs):
    assert "10 workers of 2 vCPUs" in lines()["on Dataflow"]
    assert "3 workers of 2 vCPUs" in lines("--num_workers=3")["on Dataflow"]
    many = lines("--num_workers=3", "--max_num_workers=30", "--machine_type=n2-highcpu-4", "--disk_size_gb=100")
    assert "30 workers of 4 vCPUs" in many["on Dataflow"]
    hours = 10**6 / 200 / 3600 + 30 * 4 * 5 / 60
    assert many["vCPUs"].endswith(f": {hours:,.1f} hours")
    assert many["memory"].endswith(f": {hours:,.1f} GB-hours")
    assert many["disks"].endswith(f": {hours / 4 * 100:,.0f} GB-hours")


def test_buckets_are_asked_where_they_are(gcs):
    assert "from us-east1 to us-central1" in lines()["transfer"]
    assert "of class NEARLINE" in lines()["retrieval"]
    assert "transfer" not in lines("--region=us-east1")


def test_files_that_say_what_is_in_images_are_shuffled(gcs):
    gcs.put("a.csv", bytes(60_000_000))
    inputs = (InputRows("gs://bucket/a.csv", "labels", 1, 0), InputRows("gs://bucket/images", "images", 1, 0))
    for found, told in ((), "0.0 GB"), (inputs, "0.1 GB"):
        assert lines(plan=msgspec.structs.replace(PLAN, images=1000, inputs=found))["shuffle"].endswith(f": {told}")


def test_members_of_archives_take_fewer_requests(gcs):
    gcs.put("pictures.zip", b"")
    archived = lines(images=("gs://bucket/pictures.zip",))
    assert archived["requests"].endswith("13,000 reads (class B), 2,800 listings and writes (class A)")
    assert "advice" not in archived
    assert "advice" in lines()


def test_where_nothing_is_listed_no_listing_is_paid_for(gcs):
    beams = beam_options(["--runner=DataflowRunner", "--region=us-central1"])
    for no_list, writes in ((False, "3,800"), (True, "2,800")):
        asked = CocoOptions(
            images=("gs://bucket/images",), output="gs://bucket/out", instances=("gs://b/a.json",), no_list=no_list
        )
        assert f" reads (class B), {writes} listings" in dict(plan_costs(PLAN, asked, beams))["requests"]


@pytest.mark.parametrize("flag", ["--machine_type=z9-standard-2", "--dataflow_service_options=enable_prime"])
def test_of_machines_that_are_not_known_there_is_no_price(gcs, flag):
    assert list(lines(flag)) == ["on Dataflow"]
    assert "not known here" in lines(flag)["on Dataflow"]


def test_rows_without_pictures_have_no_rate():
    options = TableOptions(rows=("gs://bucket/a.csv",), output="gs://bucket/out")
    assert list(plan_costs(PLAN, options, beam_options(["--runner=DataflowRunner"]))) == []


def test_a_dry_run_prints_it(gcs, recordmill):
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "JPEG")
    for name in ("cat/a", "dog/b"):
        gcs.put(f"images/{name}.jpg", picture.getvalue())
    flags = ["folder", "--images", "gs://bucket/images", "--output", "gs://bucket/out", "--dry-run"]
    beam = ["--runner=DataflowRunner", "--project=my-project", "--region=us-central1", "--sdk_container_image=a/b:1"]
    beam.append("--temp_location=gs://bucket/tmp")
    outcome = recordmill(*flags, "--", *beam)
    assert outcome.code == 0, outcome
    assert "  requests     $0.00: 2 reads (class B), 5 listings and writes (class A)\n" in outcome.out
    assert "on Dataflow" not in recordmill(*flags).out
    assert recordmill(*flags, "--shard-size", "10GB", "--", *beam).code == 2
