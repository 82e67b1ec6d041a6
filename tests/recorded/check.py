"""Run the recorded jobs and compare the SHA-256 of each file that they write with hashes.tsv.

    python -m tests.recorded.check [--write REASON] [JOB ...]

`--write` replaces the rows that differ, with the reason. The check and its hashes go with release 0.1.0.
"""

import argparse
import csv
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.recorded.inputs import draw_inputs
from tests.recorded.jobs import CLEAN, ODD

HASHES = Path(__file__).with_name("hashes.tsv")
MINI = Path(__file__).parents[3] / "shared" / "data" / "coco_mini"
JOBS = CLEAN | ODD
NEEDS = {
    "extract": "coco-masks-both",
    "extract-folder": "folder-stratify",
    "extract-odd": "odd-joined",
    "index": "coco-shards",
}
# Relative paths only, so that no output depends on where the inputs are.
RECORDMILL = (sys.executable, "-m", "recordmill.launch.cli")
Hashes = dict[tuple[str, str], str]  # (job, file) -> SHA-256, or the exit code of the job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", metavar="REASON")
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    arguments = parser.parse_args()
    jobs = [job for job in arguments.jobs or JOBS if job != "mini" or MINI.is_dir()]
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        found = _run_all(Path(folder), jobs)
    reasons = {(job, file): (value, reason) for job, file, value, reason in _rows()}
    recorded = {key: value for key, (value, _) in reasons.items() if key[0] in jobs}
    differing = sorted(key for key in found.keys() | recorded.keys() if found.get(key) != recorded.get(key))
    for job, file in differing:
        state = "is new" if (job, file) not in recorded else "is gone" if (job, file) not in found else "differs"
        print(f"{job}: {file} {state}")
    if arguments.write:
        for key in differing:
            reasons.pop(key, None)
        reasons |= {key: (found[key], arguments.write) for key in differing if key in found}
        with HASHES.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, delimiter="\t", lineterminator="\n")
            rows.writerows((*key, *reasons[key]) for key in sorted(reasons))
    print(f"{len(jobs)} recorded jobs, {len(found)} files: {len(differing)} differ")
    return 1 if differing and not arguments.write else 0


def _rows() -> Iterable[list[str]]:
    with HASHES.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t"))


def _run_all(folder: Path, jobs: Iterable[str]) -> Hashes:
    draw_inputs(folder, RECORDMILL)
    if MINI.is_dir():
        (folder / "mini").symlink_to(MINI)
    if "embed" in jobs:
        code = "from tests.tiny_models import as_given, saved; from pathlib import Path; import sys\n"
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        code += "saved(as_given(), Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, folder / "model.keras"], check=True, env=environment)
    # Jobs that read the output of another one wait for all others.
    then = [job for job in jobs if job in NEEDS]
    first = sorted({*jobs, *(NEEDS[job] for job in then)} - {*then})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(first, pool.map(lambda job: _run(folder, job), first), strict=True))
        if "index" in jobs:
            (folder / "out" / "index").mkdir()
            for path in (folder / "out" / NEEDS["index"]).glob("*.tfrecord-*-of-?????"):
                shutil.copy(path, folder / "out" / "index")
        found |= dict(zip(then, pool.map(lambda job: _run(folder, job), then), strict=True))
    return {(job, file): value for job in jobs for file, value in found[job].items()}


def _run(folder: Path, job: str) -> dict[str, str]:
    """Return the SHA-256 of each file of the job's output, and its exit code; one of all images that it extracts."""
    output = Path("out") / job
    arguments = shlex.split(JOBS[job].format(out=output))
    process = subprocess.run([*RECORDMILL, *arguments], cwd=folder, capture_output=True, text=True)
    if process.returncode:
        print(f"{job}: exit code {process.returncode}: {process.stderr.strip()[-300:]}")
    hashes, images = {"(exit code)": str(process.returncode)}, hashlib.sha256()
    for path in sorted(path for path in (folder / output).rglob("*") if path.is_file()):
        name, content = path.relative_to(folder / output).as_posix(), path.read_bytes()
        if job.startswith("extract") and path.suffix != ".json":
            images.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
            hashes["(images)"] = images.hexdigest()
        else:
            hashes[name] = hashlib.sha256(content).hexdigest()
    return hashes


if __name__ == "__main__":
    sys.exit(main())
