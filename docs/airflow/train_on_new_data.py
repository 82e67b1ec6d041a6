"""Train on each new data set of the DAG recordmill_convert."""

import shlex

from airflow.sdk import Asset, dag, task

DATA = Asset("recordmill_convert")


@dag(schedule=[DATA], catchup=False)
def train():
    @task.bash
    def fit(triggering_asset_events=None) -> str:
        event = triggering_asset_events[DATA][-1]
        return f"echo would train on {shlex.quote(event.extra['folder'])}"

    fit()


train()
