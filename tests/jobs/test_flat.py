"""One flat list of flags, ours and Beam's: how template launchers and Airflow start a job."""

import pytest

from recordmill.launch import flat
from recordmill.launch.command_line.parameters import TEMPLATES, command_line
from recordmill.launch.flat import from_flat
from recordmill.schemas.errors import ConfigError
from tests.conftest import shard_bytes


def test_ours_and_beams_are_told_apart():
    typed = from_flat(
        [
            "--command=folder",
            "--runner=DataflowRunner",
            "--images=gs://b/x",
            "--labels=airflow-version=v3-3-2",
            "--images=gs://b/y,gs://b/z",
            "--label_files=gs://b/t.csv",
            "--project",
            "p",
            "--gzip",
            "--stratify=true",
            "--overwrite=false",
            "--split=train=0.8,val=0.2",
            "--num-shards=8",
            "--no_use_public_ips",
            "--classes=",
        ]
    )
    place = typed.index("--")
    assert (typed[0], sorted(typed[1:place])) == (
        "folder",
        [
            "--gzip",
            "--images=gs://b/x",
            "--images=gs://b/y",
            "--images=gs://b/z",
            "--labels=gs://b/t.csv",
            "--num-shards=8",
            "--split=train=0.8,val=0.2",
            "--stratify",
        ],
    )
    assert typed[place + 1 :] == [
        "--runner=DataflowRunner",
        "--labels=airflow-version=v3-3-2",
        "--project",
        "p",
        "--no_use_public_ips",
    ]


def test_verify_has_its_folder_without_a_flag():
    arguments = ["--command=verify", "--folder=gs://b/out", "--check=hashes", "--sample=0.1", "--region=r"]
    assert from_flat(arguments) == ["verify", "gs://b/out", "--check=hashes", "--sample=0.1", "--", "--region=r"]
    with pytest.raises(ConfigError, match="it has check, folder, sample, workers"):
        command_line("verify", {"folder": "gs://b/out", "recompute": 1})


def test_how_it_is_shown_is_ours():
    arguments = ["--command=coco", "--progress=plain", "--debug", "--runner=direct"]
    assert from_flat(arguments) == ["coco", "--progress=plain", "--debug", "--", "--runner=direct"]


def test_what_is_given_twice_is_handed_on_twice():
    """The command adds lists up, and takes the last of other values."""
    arguments = [
        "--command=coco",
        "--seed=1",
        "--seed=2",
        "--categories=a,b",
        "--categories=c",
        "--gzip",
        "--gzip=false",
    ]
    assert from_flat(arguments) == ["coco", "--seed=1", "--seed=2", "--categories=a,b", "--categories=c", "--"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], f"--command= must be one of {', '.join(TEMPLATES)}"),
        (["--command=sample"], f"--command=sample must be one of {', '.join(TEMPLATES)}"),
        (["--command=coco", "--output", "x"], "--output needs its value in the same word: --output=…"),
        (["--command=coco", "--gzip=perhaps"], "gzip=perhaps must be true or false"),
    ],
)
def test_what_is_refused(arguments, told, capsys):
    with pytest.raises(ConfigError) as caught:
        from_flat(arguments)
    assert str(caught.value) == told
    assert flat.main(arguments) == 2
    assert capsys.readouterr().err == f"recordmill: {told}\n"


def test_a_job_from_flat_flags_writes_what_the_command_writes(sample, tmp_path, recordmill):
    flags = ["--images", sample.images, "--instances", sample.instances, "--max-rejects", 0.2, "--num-shards", 2]
    assert recordmill("coco", *flags, "--output", tmp_path / "typed").code == 0
    arguments = [
        *("--command=coco", "--runner=DirectRunner", "--labels=airflow-version=v3-3-2"),
        *(f"--images={sample.images}", f"--instances={sample.instances}", "--max_rejects=0.2", "--num_shards=2"),
        f"--output={tmp_path / 'flat'}",
    ]
    assert flat.main(arguments) == 0
    assert shard_bytes(tmp_path / "flat") == shard_bytes(tmp_path / "typed") != {}
