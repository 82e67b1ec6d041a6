"""Compare the shards, indexes and label files that two checkouts write on this machine, byte by byte:
`python -m tests.matrix.same_bytes OTHER_CHECKOUT`. Exit code 1 if any differ.

Each checkout runs its own tests/matrix/conversions.py, so commands may differ between them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.matrix.conversions import CONVERSIONS, files_of

HERE = Path(__file__).resolve().parents[2]


def files_by_conversion(checkout: Path, folder: Path) -> dict[str, dict[str, bytes]]:
    """Return bytes by conversion and file name."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.matrix.conversions", str(folder)]
    subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=True)
    outputs = {name: folder / "out" / name for name in CONVERSIONS}
    return {
        name: {path.relative_to(output).as_posix(): path.read_bytes() for path in files_of(output)}
        for name, output in outputs.items()
    }


def main(other: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        theirs = files_by_conversion(other, Path(folder, "other"))
        ours = files_by_conversion(HERE, Path(folder, "here"))
    count = 0
    for name in CONVERSIONS:
        names = theirs[name].keys() | ours[name].keys()
        differing = sorted(file for file in names if theirs[name].get(file) != ours[name].get(file))
        count += len(differing) + (not names)
        print(f"{name}: {len(names)} files, {len(differing)} differ", *differing)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
