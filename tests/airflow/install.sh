#!/usr/bin/env bash
# Airflow, pytest and what the lines `pip install …` of docs/airflow.md install, by the uv $1 into the environment $2, in
# the versions of airflow.txt. --without-google leaves out the line for Dataflow.
set -euo pipefail
uv=$1 folder=$2 left_out=${3:+apache-airflow-providers-google}
here=$(dirname "$0")
pip() {
    "$uv" pip "$@" --quiet --compile-bytecode --python "$folder/bin/python" --constraints "$here/airflow.txt" \
        --excludes "$here/left_out.txt"
}
pip install apache-airflow pytest
sed -n 's/^    \(pip install .*\)/\1/p' docs/airflow.md | grep -v "${left_out:-^$}" | while read -r line; do eval "$line"; done
