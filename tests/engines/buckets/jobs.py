"""Jobs with gs:// on every side, and what is looked at afterwards."""

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path

from apache_beam.internal.gcp import auth

from recordmill.transforms.storage import gcs_client, zip_storage
from recordmill.transforms.storage import resolve as storage
from tests.conftest import coco_flags, every_kind
from tests.faults.jobs import is_shard
from tests.gcs_stand_in import BUCKET, GcsStandIn

ROOT = f"gs://{BUCKET}"
OUT = f"{ROOT}/out"
ALWAYS = float("inf")
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


def emptied(server: GcsStandIn, monkeypatch) -> GcsStandIn:
    """A stand-in without objects, asked by clients without patience who remember no archive."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)  # Beam's own would be searched for 20 s
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 0.005)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 0.02)
    storage._is_remote_file.cache_clear()
    monkeypatch.setattr(zip_storage, "_listed", {})
    server.reset()
    return server


def upload(gcs: GcsStandIn, folder: Path, prefix: str) -> None:
    """All files of a local folder become objects."""
    for name, data in files_of(folder).items():
        gcs.put(f"{prefix}/{name}", data)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder by name, without links."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def objects_of(gcs: GcsStandIn, prefix: str) -> dict[str, bytes]:
    """The objects below a prefix by name."""
    below = f"{prefix}/"
    return {name.removeprefix(below): data for name, data in gcs.objects().items() if name.startswith(below)}


def shards_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if is_shard(name)}


def zipped(files: dict[str, bytes], method: int = STORED) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, data in sorted(files.items()):
            file.writestr(name, data)
    return archive.getvalue()


def in_bucket(flags: Iterable[object], folder: Path, prefix: str) -> list[str]:
    """The same flags for what was uploaded from `folder` to `prefix`."""
    return [str(flag).replace(str(folder), f"{ROOT}/{prefix}") for flag in flags]


def shown(gcs: GcsStandIn, prefix: str = "out") -> dict:
    return json.loads(gcs.objects()[f"{prefix}/manifest.json"])


def check_all_accounted(manifest: dict) -> None:
    """Every row of the input is a record or is counted as none."""
    for split in manifest["splits"].values():
        images = split["images"]
        assert images["rows"] == images["written"] + images["without_record"] + sum(images["rejected"].values())
        assert sum(shard["examples"] for shard in split["shards"]) > 0


def is_one_line(text: str) -> bool:
    return text.startswith("recordmill: ") and text.count("\n") == 1


def layout_flags(sample, layout: str, gzip: bool) -> list[str]:
    """Flags that convert all kinds of annotations of the sample that a layout has."""
    inputs = [*every_kind(sample), "--masks", "both"] if layout == "detection" else coco_flags(sample, Path())[1:5]
    more = ["--layout", layout, "--num-shards", "3", "--max-rejects", "0.2", *(["--gzip"] if gzip else [])]
    return ["convert", *inputs, *more]
