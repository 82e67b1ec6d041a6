"""The images of README.md and docs/cli.md, made of the drawn data set: `make pictures`. A function draws each."""

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).with_name("images")
COLUMNS = 124
_STYLE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
text {{ font: {char_height}px Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""Without the font that rich would fetch from the web."""
_PERCENT = re.compile(r"\(([0-9]+)%\)")
_CONTROL = re.compile(r"\r|\n|\x1b\[[0-9;?]*[A-HJKhl]")
"""Escape sequences that move the cursor or erase, without those of colours."""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        os.chdir(folder)
        _run("recordmill sample sample --count 400")
        _run(
            "recordmill convert sample/images --instances sample/annotations/instances.json"
            " --keypoints sample/annotations/person_keypoints.json --captions sample/annotations/captions.json"
            " --panoptic sample/annotations/panoptic.json --panoptic-masks sample/panoptic --masks rle"
            " --split train=0.8,val=0.2 --num-shards 4 -o tfrecords"
        )
        progress_line()
        show_saved()
        report_page()


def progress_line() -> None:
    """Draw the progress line of a conversion, of all lines the one nearest to two thirds."""
    _run("recordmill sample large --count 4000")
    command = "recordmill convert large/images --instances large/annotations/instances.json -o progress"
    frames = [(frame, _PERCENT.search(frame)) for frame in _CONTROL.split(_typed(command))]
    far = {frame: abs(66 - int(done[1])) for frame, done in frames if done}
    if not far:
        raise SystemExit("the job was done before it showed how far it was: draw more images")
    _draw("progress", command, min(far, key=far.__getitem__))


def _draw(name: str, command: str, printed: str) -> None:
    """Draw a terminal with a command and its output as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(f"[bold]$ {command}[/bold]", highlight=False)
    console.print(Text.from_ansi(printed), soft_wrap=True)
    title = " ".join(command.split()[:2])
    console.save_svg(str(PICTURES / f"{name}.svg"), title=title, code_format=_STYLE, unique_id=name)


def show_saved() -> None:
    """Draw a record by `recordmill show --save`."""
    _run("recordmill show tfrecords --find category=figure --index 12 --save show.png")
    shutil.copy("show.png", PICTURES / "show-saved.png")


def report_page() -> None:
    """Draw the top of `report.html` in a browser."""
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if browser is None:
        raise SystemExit("no chromium on this machine; make test-browser installs it")
    page = Path("tfrecords/report.html").resolve().as_uri()
    flags = ["--no-sandbox", "--hide-scrollbars", "--window-size=1000,1130", "--screenshot=report.png", page]
    subprocess.run([browser, *flags], check=True, stderr=subprocess.DEVNULL)
    with Image.open("report.png") as picture:
        picture.convert("RGB").quantize(256).save(PICTURES / "report.png", optimize=True)


def _run(command: str) -> None:
    subprocess.run(_words(command), check=True, stdout=subprocess.DEVNULL)


def _words(command: str) -> list[str]:
    program, *words = command.split()
    return [str(Path(sys.executable).with_name(program)), *words]


def _typed(command: str) -> str:
    """Return the output of a command on a terminal of COLUMNS columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(_words(command), stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    printed = b""
    while True:
        try:
            printed += os.read(ours, 1 << 16)
        except OSError:  # the terminal is closed
            break
    if process.wait():
        raise SystemExit(f"{command} failed")
    return printed.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
