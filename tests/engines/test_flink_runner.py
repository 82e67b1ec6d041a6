"""The command of docs/flink.md, as it is typed: Beam's FlinkRunner starts the job server itself."""

from tests.engines.conftest import in_pool
from tests.engines.output import files_of


def test_flink_runner(sample, cluster, pool, job_server_jar, convert):
    inputs = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", "0.2"]
    arguments = ["coco", *inputs, "--num-shards", "3"]
    runner = ["--runner=FlinkRunner", "--flink_version=1.19", f"--flink_master={cluster.master}"]
    output = convert("engine", arguments, [*runner, f"--flink_job_server_jar={job_server_jar}", *in_pool(pool)])
    assert files_of(output) == files_of(convert("reference", arguments))
