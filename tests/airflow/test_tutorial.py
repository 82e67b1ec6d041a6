"""docs/tutorials/airflow_schedule.md: its data, its DAGs and its runs, in the order of the page."""

import ast
import json
import re
import shlex
import subprocess

from conftest import RECORDMILL, DagRun, tutorial


def test_airflow_schedule(home, tmp_path):
    _, draw, runs = tutorial("sh")
    data = tmp_path / "data"
    draw = draw.replace("/data/", f"{data}/").replace("/opt/recordmill/bin/recordmill", str(RECORDMILL))
    subprocess.run(["bash", "-euc", draw], check=True, cwd=tmp_path, capture_output=True)
    data_sets = ast.literal_eval(tutorial("python")[0].removeprefix("DATA_SETS = "))
    settings = {"RECORDMILL": str(RECORDMILL), "DATA_SETS": data_sets}
    done = None
    for number, line in enumerate(runs.splitlines()):
        airflow, dags, test, dag_id, date, *conf = shlex.split(line)
        assert (airflow, dags, test) == ("airflow", "dags", "test")
        params = json.loads(conf[1]) if conf else {}
        done = DagRun(home, tmp_path / str(number), settings, dag_id, params, date, str(data)).wait()
        assert done.code == 0, done.log
    (text,) = tutorial("text")
    assert re.findall(r"training on .*? shards", done.log) == [text.strip()]
