"""Convert in a task of your own, with the Python of Recordmill's environment."""

from airflow.sdk import dag, task


@dag(schedule=None, params={"images": "/data/images", "instances": "/data/instances.json", "output": "/data/own"})
def own():
    @task.external_python(python="/opt/recordmill/bin/python", expect_airflow=False)
    def convert(images: str, instances: str, output: str) -> int:
        import recordmill

        data = recordmill.convert(images, output, instances=instances, max_rejects=0.2)
        return len(data["train"])

    names = ("images", "instances", "output")
    convert(*(f"{{{{ params.{name} }}}}" for name in names))


own()
