"""Train on each new data set of the DAG recordmill_coco."""

import shlex

from airflow.sdk import Asset, dag, task

COCO = Asset("recordmill_coco")


@dag(schedule=[COCO], catchup=False)
def train():
    @task.bash
    def fit(triggering_asset_events=None) -> str:
        event = triggering_asset_events[COCO][-1]
        return f"echo would train on {shlex.quote(event.extra['folder'])}"

    fit()


train()
