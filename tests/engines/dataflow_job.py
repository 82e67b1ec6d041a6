"""The command that submits `coco` to the stand-in of Dataflow's service."""

from tests.dataflow_stand_in import PROJECT, REGION, DataflowStandIn
from tests.gcs_stand_in import BUCKET

IMAGE = "europe-west4-docker.pkg.dev/recordmill-test/recordmill/coco:1"


def coco(dataflow: DataflowStandIn, *more: str, beam: tuple[str, ...] = ()) -> list[str]:
    return [
        *("coco", "--images", f"gs://{BUCKET}/in", "--instances", f"gs://{BUCKET}/instances.json"),
        *("--output", f"gs://{BUCKET}/out", "--num-shards", "3", "--max-rejects", "0.2", *more, "--"),
        *(
            "--runner=DataflowRunner",
            f"--project={PROJECT}",
            f"--region={REGION}",
            f"--temp_location=gs://{BUCKET}/tmp",
        ),
        *(f"--sdk_container_image={IMAGE}", f"--dataflow_endpoint={dataflow.url}", "--no_auth", *beam),
    ]
