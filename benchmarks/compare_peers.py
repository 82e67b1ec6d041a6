"""One table of twelve other programs and Recordmill with each container, which write the same images and boxes.

    python benchmarks/compare_peers.py [--images 5000] [--shards 8] [--runs 3] [--only NAME,NAME]
        [--folder DIR] [--chart FILE.svg]

`make bench-peers` installs them first, each in an environment of its own below .peers; benchmarks/peers/ has a script
of each, with the settings that are fastest here. Whole processes are timed, in turn, round after round; those that take
long are run once. "after imports" is without what importing their modules takes. Memory is that of all processes.

Below the table is the time of each container relative to other writers of such files, after imports.

What each does about bad input is found by running it: an image that is cut off in its middle, one that is not there,
and one of another size than the JSON says, among sixteen. Recordmill is told to accept rejects, as it ends with an
error, after writing, where they are so many.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import date
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from arguments import read_arguments
from chart import draw_bars
from coco import IMPORTS, coco
from make_coco import HEIGHT, WIDTH, make
from measure import Measure, measured

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from recordmill.schemas.containers import CONTAINERS, TFRECORD  # noqa: E402

OURS, PEERS, GARDEN = (
    Path(sys.executable),
    HERE.parent / ".peers",
    HERE.parent / ".venv-model-garden" / "bin" / "python",
)
ENVIRONMENT = os.environ | {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "NO_GCE_CHECK": "true",
    "PYTHONPATH": f"{HERE / 'peers'}{os.pathsep}{HERE.parent}",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "WANDB_MODE": "disabled",
}
"""Nothing asks the network."""


class Peer(NamedTuple):
    """`command` makes one of data, output and shards; `imports` is what it imports; `is_slow`: one run has to do."""

    python: Path
    command: Callable[[Path, Path, int], list[str]]
    imports: str = ""
    is_slow: bool = False


def script(name: str, python: Path, is_slow: bool = False) -> Peer:
    """benchmarks/peers/NAME.py DATA OUTPUT SHARDS."""
    path = str(HERE / "peers" / f"{name}.py")
    return Peer(
        python,
        lambda data, output, shards: [str(python), path, str(data), str(output), str(shards)],
        f"import {name}",
        is_slow,
    )


def of_environment(name: str, module: str, is_slow: bool = False) -> Peer:
    return script(module, PEERS / name / "bin" / "python", is_slow)


def ours(check: str, container: str = TFRECORD) -> Peer:
    flags = ["--check", check, "--max-rejects", "1", "--container", container]
    imports = f"{IMPORTS}    import {CONTAINERS[container].module}"
    return Peer(OURS, lambda data, output, shards: coco(data, output, shards, *flags), imports)


def model_garden(data: Path, output: Path, shards: int) -> list[str]:
    """Without its pool, which is slower here."""
    return [
        *(str(GARDEN), "-m", "official.vision.data.create_coco_tf_record"),
        *(f"--image_dir={data / 'images'}", f"--object_annotations_file={data / 'instances.json'}"),
        *(f"--output_file_prefix={output / 'train'}", f"--num_shards={shards}", "--num_processes=0"),
    ]


def copy(data: Path, output: Path, _: int) -> list[str]:
    return ["cp", "-r", str(data / "images"), str(output)]


ROWS = {
    "recordmill --check header": ours("header"),
    "recordmill --check decode": ours("decode"),
    **{
        f"recordmill --container {name}": ours("header", name)
        for name, row in CONTAINERS.items()
        if name != TFRECORD and row.is_installed
    },
    "tfrecord (PyPI) in a loop": of_environment("tfrecord", "write_tfrecord"),
    "webdataset": of_environment("webdataset", "write_webdataset"),
    "array_record": of_environment("array_record", "write_array_record"),
    "tf.io.TFRecordWriter in a loop": script("write_tensorflow", OURS),
    "TensorFlow Datasets": script("write_tfds", OURS, is_slow=True),
    "Model Garden": Peer(GARDEN, model_garden, "import official.vision.data.create_coco_tf_record", is_slow=True),
    "Hugging Face datasets to Parquet": of_environment("datasets", "write_parquet"),
    "ParquetWriter of datasets": of_environment("datasets", "write_parquet_directly"),
    "LitData": of_environment("litdata", "write_litdata", is_slow=True),
    "MDS (streaming)": of_environment("streaming", "write_mds", is_slow=True),
    "Ray Data": of_environment("ray", "write_ray", is_slow=True),
    "img2dataset": of_environment("img2dataset", "write_img2dataset", is_slow=True),
    "plain Beam": script("write_beam", OURS, is_slow=True),
    "cp -r": Peer(Path("/bin/cp"), copy),
}
RIVALS = {
    "recordmill --check header": ["tfrecord (PyPI) in a loop", "tf.io.TFRecordWriter in a loop"],
    "recordmill --container webdataset": ["webdataset"],
    "recordmill --container arrayrecord": ["array_record"],
    "recordmill --container parquet": ["Hugging Face datasets to Parquet", "ParquetWriter of datasets"],
}
"""Other writers of the same kind of files, by row."""


def run(command: list[str], output: Path) -> Measure:
    """Measure of a command that writes `output` from scratch; its messages are in the log file beside it."""
    shutil.rmtree(output, ignore_errors=True)
    os.sync()  # or it would wait for what others have written
    with log_of(output).open("w") as log:
        return measured(command, environment=ENVIRONMENT, log=log)


def log_of(output: Path) -> Path:
    return output.with_suffix(".log")


def timed(peer: Peer, data: Path, output: Path, shards: int) -> Measure:
    """Measure of a run that wrote every image.

    Raises:
        SystemExit: it failed, or wrote too little.
    """
    try:
        found = run(peer.command(data, output, shards), output)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error}:\n{log_of(output).read_text()[-2000:]}") from error
    written, read = size_of(output), size_of(data / "images")
    if written < read:
        raise SystemExit(f"{' '.join(peer.command(data, output, shards))} wrote {written:,} of {read:,} bytes")
    return found


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# What each does about bad input


def cut_off(data: Path, name: str) -> None:
    path = data / "images" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def missing(data: Path, name: str) -> None:
    (data / "images" / name).unlink()


def another_size(data: Path, name: str) -> None:
    path = data / "instances.json"
    document = json.loads(path.read_text())
    for image in document["images"]:
        if image["file_name"] == name:
            image["width"], image["height"] = HEIGHT, WIDTH
    path.write_text(json.dumps(document))


FAULTS: Mapping[str, Callable[[Path, str], None]] = {
    "cut off": cut_off,
    "missing": missing,
    "another size": another_size,
}


def answer(status: int, said: bytes, output: Path, name: str, some: bytes | None) -> str:
    """The peer's answer to a bad image, whose file contains the bytes `some`."""
    if status:
        return "stops"
    texts = [path.read_bytes() for path in output.rglob("*") if path.is_file()]
    if some and any(some in text for text in texts):
        return "written"
    named = any(name.encode() in text for text in (*texts, said))
    return "left out, named" if named else "left out"  # packed files may name it unseen


def answers(peers: Mapping[str, Peer], folder: Path) -> dict[str, list[str]]:
    """By peer, what it does about each fault."""
    found: dict[str, list[str]] = {name: [] for name in peers}
    output = folder / "output"
    for fault, spoil in FAULTS.items():
        data = folder / "faulty"
        shutil.rmtree(data, ignore_errors=True)
        make(data, 16)
        bad = f"{7:012}.jpg"
        spoil(data, bad)
        path = data / "images" / bad
        some = path.read_bytes()[3000:3100] if path.exists() else None
        for name, peer in peers.items():
            shutil.rmtree(output, ignore_errors=True)
            ran = subprocess.run(peer.command(data, output, 1), env=ENVIRONMENT, capture_output=True)
            found[name].append(answer(ran.returncode, ran.stdout + ran.stderr, output, bad, some))
            print(f"{name}, {fault}: {found[name][-1]}", file=sys.stderr)
    return found


def choose(names: str) -> list[str]:
    """Rows with these names, which commas separate; all rows without names.

    Raises:
        SystemExit: there is no such row.
    """
    chosen = names.split(",") if names else list(ROWS)
    if unknown := sorted({*chosen} - ROWS.keys()):
        raise SystemExit(f"--only: no row is called {', '.join(map(repr, unknown))}; there are {', '.join(ROWS)}")
    return chosen


def imports_of(peer: Peer, output: Path) -> Measure:
    return run([str(peer.python), "-c", peer.imports], output) if peer.imports else Measure(0, 0, 0)


def main() -> None:
    arguments, folder = read_arguments(__doc__, images=5000, shards=8, runs=3, only="", chart="")
    chosen = choose(arguments.only)
    peers = {name: ROWS[name] for name in chosen if ROWS[name].python.exists()}
    data, output = folder / f"coco-{arguments.images}", folder / "output"
    if not data.exists():
        make(data, arguments.images)
    runs: dict[str, list[Measure]] = {name: [] for name in peers}
    imports: dict[str, list[Measure]] = {name: [] for name in peers}
    for turn in range(arguments.runs):
        for name, peer in peers.items():
            if not (turn and peer.is_slow):
                imports[name].append(imports_of(peer, output))
                runs[name].append(timed(peer, data, output, arguments.shards))
                print(f"{name}: {runs[name][-1]}, importing {imports[name][-1]}", file=sys.stderr)
    if arguments.chart:
        draw(Path(arguments.chart), runs, arguments.images)
    report(chosen, runs, imports, answers(peers, folder))
    shutil.rmtree(output, ignore_errors=True)


CHARTED = {
    "recordmill --check header": "Recordmill, --check header",
    "recordmill --check decode": "Recordmill, decodes every image",
    "webdataset": "webdataset",
    "tf.io.TFRecordWriter in a loop": "tf.io.TFRecordWriter in a loop",
    "Hugging Face datasets to Parquet": "Hugging Face datasets, Parquet",
    "TensorFlow Datasets": "TensorFlow Datasets",
    "Model Garden": "Model Garden's script",
    "img2dataset": "img2dataset",
}
"""Rows of the chart, and their names in it."""


def draw(path: Path, runs: Mapping[str, list[Measure]], images: int) -> None:
    """Write the chart of README.md: elapsed time of each program, relative to the default of Recordmill."""
    seconds = {
        CHARTED[name]: statistics.median(measure.seconds for measure in measures)
        for name, measures in runs.items()
        if name in CHARTED
    }
    ours = seconds[CHARTED["recordmill --check decode"]]
    bars = {name: number / ours for name, number in sorted(seconds.items(), key=itemgetter(1))}
    draw_bars(
        path,
        f"Time to write {images:,} COCO images of 130 kB with their boxes",
        f"Whole processes on two virtual cores, {date.today()}. Shorter is better. `make bench-peers` repeats it.",
        {"relative to the default": bars},
        "{:.1f}",
    )


def report(
    chosen: list[str], runs: dict[str, list[Measure]], imports: dict[str, list[Measure]], done: dict[str, list[str]]
) -> None:
    print(f"| | runs | seconds | after imports | of processor | after imports | peak MB | {' | '.join(FAULTS)} |")
    print("|---" * (7 + len(FAULTS)) + "|")
    work = {}
    for name in chosen:
        if name not in runs:
            print(f"| {name} | not installed |")
            continue
        whole, importing = (
            Measure(*map(statistics.median, zip(*of, strict=True))) for of in (runs[name], imports[name])
        )
        work[name] = whole.seconds - importing.seconds, whole.processor_s - importing.processor_s
        print(
            f"| {name} | {len(runs[name])} | {whole.seconds:.1f} | {work[name][0]:.1f} "
            f"| {whole.processor_s:.1f} | {work[name][1]:.1f} | {whole.peak_mb:,.0f} "
            f"| {' | '.join(done[name])} |"
        )
    for name in work:
        for rival in filter(work.__contains__, RIVALS.get(name, ())):
            time, processor = (mine / other for mine, other in zip(work[name], work[rival], strict=True))
            print(f"{name} against {rival}: {processor:.2f} of its processor time, {time:.2f} of its time")


if __name__ == "__main__":
    main()
