"""One flat list of flags, ours and Beam's: how template launchers and Airflow start a job."""

import pytest

from recordmill.launch import flat
from recordmill.launch.flat import from_flat
from recordmill.schemas.errors import ConfigError

MIXED = """--command=convert --format=folder --runner=DataflowRunner --data=gs://b/x --labels=airflow-version=v3-3-2
    --data=gs://b/y,gs://b/z --label_files=gs://b/t.csv --project p --gzip --stratify=true --overwrite=false
    --split=train=0.8,val=0.2 --num-shards=8 --no_use_public_ips --classes="""


@pytest.mark.parametrize(
    ("arguments", "ours", "beams"),
    [
        (
            MIXED,
            "convert gs://b/x gs://b/y gs://b/z --format=folder --gzip --labels=gs://b/t.csv --num-shards=8"
            " --split=train=0.8,val=0.2 --stratify",
            "--runner=DataflowRunner --labels=airflow-version=v3-3-2 --project p --no_use_public_ips",
        ),
        (
            "--command=verify --folder=gs://b/out --check=hashes --sample=0.1 --region=r",
            "verify gs://b/out --check=hashes --sample=0.1",
            "--region=r",
        ),
        (
            "--command=convert --progress=plain --debug --runner=direct",
            "convert --progress=plain --debug",
            "--runner=direct",
        ),
        (
            "--command=convert --seed=1 --seed=2 --categories=a,b --categories=c --gzip --gzip=false",
            "convert --seed=1 --seed=2 --categories=a,b,c",
            "",
        ),
    ],
    ids=["of both", "a path without a flag", "how it is shown", "given twice"],
)
def test_flags_of_ours_and_of_beam(arguments, ours, beams):
    typed = from_flat(arguments.split())
    place = typed.index("--")
    assert sorted(typed[1:place]) == sorted(ours.split()[1:])
    assert [typed[0], *typed[place + 1 :]] == [ours.split()[0], *beams.split()]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--command=sample"], ["--command=convert", "--output", "x"], ["--command=convert", "--gzip=perhaps"]],
)
def test_refused(arguments, capsys):
    with pytest.raises(ConfigError) as caught:
        from_flat(arguments)
    assert flat.main(arguments) == 2
    assert capsys.readouterr().err == f"recordmill: {caught.value}\n"
