"""report.html in a real browser: it needs nothing from elsewhere, runs no script, fits the screen, and can be read by
keyboard and by who hears it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests.conftest import every_kind
from tests.transforms.insight.test_page import HOSTILE, LONG, RIGHT_TO_LEFT, SCRIPT

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 5


def chromium() -> str:
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert found, "make test-browser installs it"
    return found


def hostile(sample, folder: Path) -> Path:
    """An annotation file whose classes and fields are called what should stay text, of images with such names."""
    document = json.loads(Path(sample.instances).read_bytes())
    names = [name for name in HOSTILE if "\x00" not in name]
    for category, name in zip(document["categories"], names, strict=False):
        category["name"] = name
    for number, row in enumerate(document["annotations"]):
        row |= {"score": number / 7, SCRIPT: names[number % len(names)]}
    images = shutil.copytree(sample.images, folder / "images")
    image = next(image for image in document["images"] if (images / image["file_name"]).exists())
    names = ("<img src=x onerror=alert(1)>.jpg", f"{RIGHT_TO_LEFT}.jpg", f"{'n' * 240}.jpg")
    for number, name in enumerate(names):
        shutil.copy(images / image["file_name"], images / name)
        document["images"].append({**image, "id": 10_000 + number, "file_name": name})
    path = folder / "hostile.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def seen(sample, tmp_path_factory) -> dict[str, list[dict]]:
    """Findings of the browser, by page."""
    folder = tmp_path_factory.mktemp("pages")
    files = hostile(sample, folder)
    jobs = {
        "every kind": ["convert", *every_kind(sample), "--output", folder / "every kind"],
        "hostile": [
            *("convert", "--images", folder / "images", "--instances", files, "--output", folder / "hostile"),
            *("--fields", f"score,{SCRIPT}", "--split", "train=0.6,val=0.4"),
        ],
        "folder": [
            "convert",
            sample.classes,
            *["--format", "folder", "--split", "train=0.6,val=0.4", "--output"],
            folder / "folder",
        ],
        "table": ["convert", sample.objects, *["--format", "table", "--label", "shape", "--output"], folder / "table"],
    }
    for words in jobs.values():
        assert main([*map(str, words), "--progress", "none", "--max-rejects", "0.5"]) == 0
    command = ["node", ROOT / "tests" / "browser" / "look.mjs", chromium()]
    pages = [folder / name / "report.html" for name in jobs]
    environment = {**os.environ, "BROWSER_MODULES": str(ROOT / ".browser" / "node_modules")}
    done = subprocess.run(
        [*command, *pages], env=environment, stdout=subprocess.PIPE, check=True, timeout=60 * MINUTES, text=True
    )
    found = json.loads(done.stdout)
    return {name: [each for each in found if Path(each["file"]).parent.name == name] for name in jobs}


PAGES = ("every kind", "hostile", "folder", "table")


@pytest.mark.parametrize("page", PAGES)
def test_page_on_all_screens(seen, page):
    assert len(seen[page]) == 4
    for found in seen[page]:
        assert (found["console"], found["requests"], found["dialogs"]) == ([], [], 0)
        assert found["widthOfContent"] <= found["width"]
        assert found["widthWithDetails"] <= found["width"]
        assert found["cut"] == []
        assert found["endOfChecks"] < 900  # on the first screen
        assert all(found["pictures"])
        assert found["violations"] == []
        assert found["closed"] > 0
        assert found["leftClosed"] == 0  # Tab and Enter have opened all


def test_page_is_no_longer_than_it_needs_to_be(seen):
    assert [
        found["height"] for page in PAGES for found in seen[page] if found["width"] == 1280 and found["height"] > 8000
    ] == []


def test_pictures_are_on_pages_of_data_sets_that_have_some(seen):
    assert [len(seen[page][0]["pictures"]) > 10 for page in PAGES] == [True, True, True, False]


def test_names_from_data_stand_there_as_text(seen):
    for found in seen["hostile"]:
        for name in (SCRIPT, LONG, RIGHT_TO_LEFT, "{{ 7 * 7 }}"):
            assert name in found["text"]
