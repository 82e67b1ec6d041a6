"""The rooms, and which may import which: arrows point up the list, at any depth, and never in a circle."""

import ast
import doctest
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import setuptools

from recordmill.pipelines.formats import FORMATS, LABEL_FILE_FORMATS

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "schemas",
    "schemas.inputs",
    "schemas.dataset",
    "transforms.storage",
    "transforms.runtime",
    "transforms.records",
    "transforms.containers",
    "transforms.images",
    "transforms.blocks",
    "transforms.dataset",
    "transforms.insight",
    "transforms.rows",
    "transforms.join",
    "transforms.encoders",
    "transforms.shape",
    "transforms.shards",
    "transforms.grow",
    "transforms.coco",
    "transforms.folder",
    "transforms.user_samples",
    "transforms.annotated",
    *(f"transforms.{name}" for name in LABEL_FILE_FORMATS),
    "recordmill",  # what users import
    "recordmill.formats",  # what formats of other packages are made of
    "transforms.table",
    "transforms.verify",
    "transforms.extract",
    "transforms.repack",
    "transforms.show",
    "transforms.sample",
    "pipelines",
    "launch.command_line",
    "launch.terminal",
    "launch.local_engine",
    "launch.runners",
    "launch.preflight",
    "launch.verbs",
    "launch.services",
    "launch",
    "recordmill._keywords",  # for type checkers
    "recordmill._conversion",
    "recordmill._convert",  # what users call to convert
    "recordmill._beam_checks",
    "recordmill._beam_records",
    "recordmill._beam_steps",
    "recordmill._beam_join",
    "recordmill.beam",  # what users' pipelines are made of
)
LIGHT = (
    *(
        "schemas",
        "schemas.inputs",
        "schemas.dataset",
        "transforms.storage",
        "recordmill",
        "_conversion",
        "_convert",
        "pipelines.verbs",
    ),
    *("pipelines.dataset_options", "pipelines.model_options", "transforms.coco.coco_options"),
    *(f"transforms.{name}.{name}_options" for name in FORMATS),
    *("launch.command_line", "launch.services", "launch", "launch.runners.signals", "launch.terminal.error_stream"),
    *(
        "launch.verbs.show",
        "launch.verbs.report",
        "launch.verbs.index",
        "launch.verbs.sample",
        "transforms.insight.page",
    ),
)
"""Rooms and modules that are imported before a command is understood, by a DAG, by who trains, or where no extra is
installed: nothing comes with them that one brings."""
EXTRAS = {"apache_beam", "array_record", "grpc", "pyarrow", "tensorflow"}
DATA = (ROOT / "recordmill" / "py.typed", ROOT / "transforms" / "insight" / "page.html")
"""Installed files besides modules of rooms."""
LAYERS = ("schemas", "transforms", "pipelines", "launch")


def _files() -> dict[str, Path]:
    folders = [ROOT / "recordmill", *(ROOT / room.replace(".", "/") for room in ROOMS if room != "recordmill")]
    found = {}
    for path in sorted({path for folder in (*folders, ROOT / "transforms") for path in folder.glob("*.py")}):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(("recordmill", *parts) if parts[0] != "recordmill" else parts)
        found[name.removesuffix(".__init__")] = path
    return found


FILES = _files()
DEPLOYED = sorted({path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")} - set(FILES.values()))
"""Modules outside of the distribution: those of a template's image and of Airflow's folder of DAGs."""


def room_of(module: str) -> str:
    """`transforms.images` of `recordmill.transforms.images.check_formats`."""
    if module in ROOMS:  # a module that is a room
        return module
    path = FILES[module].relative_to(ROOT)
    return ".".join(path.parent.parts)


def installed_name(path: Path) -> str:
    """`recordmill/schemas/layouts.py`, of `schemas/layouts.py` in the clone."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts if parts[0] == "recordmill" else ("recordmill", *(part for part in parts if part != "docs")))


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of modules that a piece of code imports; of `from a import b`, both a and a.b, as b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _AtImport(ast.NodeTransformer):
    """Leaves what runs when a module is imported."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def parsed(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(), str(FILES[module]))


@cache
def ever(module: str) -> set[str]:
    return set(imported(parsed(module)))


@cache
def at_import(module: str) -> set[str]:
    return set(imported(_AtImport().visit(parsed(module))))


def reached(module: str, imports: Callable[[str], set[str]] = at_import) -> set[str]:
    """Return all that `module` imports, through our own modules; by default, at its import."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        for name in imports(pending.pop()):
            if name not in seen:
                seen.add(name)
                pending += [name] if name in FILES else []
    return seen


def test_layering_finds_forbidden_imports():
    assert "recordmill.transforms.storage.resolve" in ever("recordmill.launch.preflight.check_inputs")
    assert "recordmill.launch.verbs.convert" in ever("recordmill.launch.cli") - at_import("recordmill.launch.cli")
    assert "tensorflow" in ever("recordmill._tensorflow_reader") - at_import("recordmill._tensorflow_reader")
    assert "apache_beam" in reached("recordmill.pipelines.coco")
    assert room_of("recordmill.launch.cli") == "launch"


def test_every_module_is_in_a_room():
    assert {room_of(module) for module in FILES} - {"transforms"} == set(ROOMS)
    assert FILES.keys() & {"recordmill.transforms"} == {module for module in FILES if room_of(module) == "transforms"}


def test_arrows_point_up_the_list():
    for module in FILES.keys() - {"recordmill", "recordmill.transforms"}:
        above = ROOMS[: ROOMS.index(room_of(module)) + 1]
        wrong = {name for name in ever(module) & FILES.keys() if room_of(name) not in (*above, "transforms")}
        assert not wrong, module
    assert not ever("recordmill.transforms")
    assert not at_import("recordmill") & FILES.keys()


SOURCES = {f"transforms.{name}" for name in FORMATS}
"""What reads a data set. Any of them can go without the others: tests/matrix/test_removed_sources.py removes each."""
WIRING = {f"recordmill.pipelines.{name}" for name in ("coco", "folder", "table")}
"""Modules that name a source. All others reach it through the registry, pipelines/formats.py."""


def test_no_source_is_imported_by_name():
    for module in FILES.keys() - WIRING:
        sources = {room_of(name) for name in ever(module) & FILES.keys()} & SOURCES
        assert sources <= {room_of(module)}, module


def test_no_room_imports_public_package():
    readers = {name for name in FILES if room_of(name) == "recordmill"} - {"recordmill"}
    others = [name for name in FILES if not room_of(name).startswith("recordmill")]
    assert [module for module in others if ever(module) & readers] == []


def test_readers_import_no_more_than_they_need():
    """Neither shards nor insight, nor what comes with them."""
    readers = [name for name in FILES if room_of(name) == "recordmill" and name != "recordmill"]
    names = {name for module in readers for name in reached(module, ever) if name in FILES}
    rooms = ROOMS[: ROOMS.index("transforms.dataset") + 1]  # dataset, images, records, storage, and what these need
    assert {room_of(name) for name in names} - {*rooms, "recordmill"} == set()
    assert [module for module in readers if module in reached(module, ever)] == []


def test_no_two_classes_share_a_name():
    classes = [node.name for name in FILES for node in ast.walk(parsed(name)) if isinstance(node, ast.ClassDef)]
    assert [name for name, number in Counter(classes).items() if number > 1] == []


def test_no_module_imports_itself_through_others():
    assert [module for module in FILES if module in reached(module)] == []


def roots(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_tensorflow_is_imported_inside_functions_only():
    assert [name for name in FILES if roots(at_import(name)) & {"tensorflow", "tensorflow_datasets"}] == []


def test_google_s_clients_are_imported_inside_functions_only():
    """The extras gs and gcp bring them; whoever reads local files has none."""
    clients = "google.api_core", "google.auth", "google.cloud"
    assert [name for name in FILES if any(each.startswith(clients) for each in at_import(name))] == []


def test_schemas_and_readers_never_import_beam():
    modules = [name for name in FILES if room_of(name).startswith("schemas") or room_of(name) == "recordmill"]
    assert modules
    assert [name for name in modules if "apache_beam" in roots(ever(name))] == []


def test_readers_never_import_pydantic():
    """The import of pydantic takes 110 ms."""
    assert "pydantic" in roots(reached("recordmill.schemas.inputs.options"))
    readers = [name for name in FILES if room_of(name) == "recordmill"]
    assert [name for name in readers if "pydantic" in roots(reached(name))] == []


def test_quick_imports_reach_no_extra():
    light = [name for name in FILES if {room_of(name), name.removeprefix("recordmill.")} & set(LIGHT)]
    assert len(light) > len(LIGHT)
    assert [name for name in light if roots(reached(name)) & EXTRAS] == []


def test_distribution_holds_all_rooms_only(monkeypatch):
    monkeypatch.chdir(ROOT)
    distribution = setuptools.Distribution({"long_description": "set by setup.py"})
    distribution.parse_config_files()
    packages = {f"recordmill.{room}" for room in (*ROOMS, "transforms") if room not in FILES} | {"recordmill"}
    assert set(distribution.packages) == packages
    assert packages <= FILES.keys()


def test_rooms_are_imported_by_one_name():
    """A module imported as `schemas` or `launch` would be a second copy, or a user's module."""
    visible = [folder for folder in ROOT.iterdir() if not folder.name.startswith(".")]  # environments are hidden
    for path in (path for folder in visible for path in folder.rglob("*.py")):
        assert not roots(set(imported(ast.parse(path.read_text())))) & set(LAYERS), path


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: path.name)
def test_deployed_files_import_only_distribution(path):
    assert path.parent.parent == ROOT / "launch"
    assert not (path.parent / "__init__.py").exists()  # a package within would be left out of the distribution
    ours = {name for name in imported(ast.parse(path.read_text())) if name.startswith("recordmill.")}
    assert [name for name in ours if not any(name == module or name.startswith(f"{module}.") for module in FILES)] == []


@pytest.mark.parametrize("module", [module for module in FILES if ">>> " in FILES[module].read_text()])
def test_examples_in_docstrings_hold(module):
    failed, tried = doctest.testmod(import_module(module))
    assert tried
    assert not failed
