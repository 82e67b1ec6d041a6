"""The command of docs/flink.md for Spark, as it is typed: Beam's SparkRunner starts the job server itself."""

import pytest

from tests.engines import fetch
from tests.engines.conftest import fetched
from tests.engines.output import files_of


@pytest.mark.parametrize("coco", ["sample"], indirect=True)
def test_spark_writes_the_same_bytes(coco, convert):
    jar = fetched(fetch.SPARK_JOB_SERVER) / fetch.JOB_SERVER_JAR
    spark = ["--runner=SparkRunner", "--spark_master_url=local[2]", f"--spark_job_server_jar={jar}"]
    assert files_of(convert("engine", coco, [*spark, "--environment_type=LOOPBACK"])) == files_of(
        convert("reference", coco)
    )
