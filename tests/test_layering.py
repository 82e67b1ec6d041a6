"""Arrows between modules only point down: launch -> pipelines -> transforms -> schemas."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("schemas", "transforms", "pipelines", "launch")
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for layer in LAYERS
    for path in sorted((ROOT / layer).glob("*.py"))
}
DEPLOYED = sorted(path for layer in LAYERS for path in (ROOT / layer).glob("*/**/*.py"))
"""What is copied to where it runs, a template's image or Airflow's folder of DAGs: no part of the distribution."""
LIGHT = [name for name in FILES if name.startswith("schemas.")]
LIGHT += [
    "pipelines.options",
    "pipelines.coco_options",
    "pipelines.folder_options",
    "launch.airflow_arguments",
    "launch.airflow_site",
    "launch.cli",
    "launch.flat",
    "launch.parameters",
    "launch.parser",
    "launch.signals",
    "launch.template_metadata",
    "launch.flags",
]


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


EVER = {module: set(imported(parsed(module))) for module in FILES}
AT_IMPORT = {module: set(imported(_AtImport().visit(parsed(module)))) for module in FILES}


def reached(module: str) -> set[str]:
    """All that is imported when `module` is, through our own modules."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        for name in AT_IMPORT[pending.pop()]:
            if name not in seen:
                seen.add(name)
                pending += [name] if name in FILES else []
    return seen


def test_the_parsing_sees_what_it_should():
    assert {"schemas.errors", "transforms.storage"} <= EVER["pipelines.check_inputs"]
    assert "launch.coco" in EVER["launch.cli"] - AT_IMPORT["launch.cli"]
    assert "tensorflow" in EVER["schemas.dataset"] - AT_IMPORT["schemas.dataset"]
    assert "apache_beam" in reached("pipelines.coco")


@pytest.mark.parametrize("module", FILES)
def test_arrows_point_down(module):
    below = LAYERS[: LAYERS.index(module.split(".")[0]) + 1]
    ours = {name.split(".")[0] for name in EVER[module]} & set(LAYERS)
    assert ours <= set(below)


@pytest.mark.parametrize("module", FILES)
def test_no_module_imports_itself_through_others(module):
    assert module not in reached(module)


@pytest.mark.parametrize("module", FILES)
def test_tensorflow_is_imported_inside_functions_only(module):
    assert [name for name in AT_IMPORT[module] if name.split(".")[0] in ("tensorflow", "tensorflow_datasets")] == []


@pytest.mark.parametrize("module", [name for name in FILES if name.startswith("schemas.")])
def test_schemas_never_import_beam(module):
    assert [name for name in EVER[module] if name.split(".")[0] == "apache_beam"] == []


@pytest.mark.parametrize("module", LIGHT)
def test_what_must_be_quick_to_import_reaches_neither_beam_nor_tensorflow(module):
    assert [name for name in reached(module) if name.split(".")[0] in ("apache_beam", "tensorflow")] == []


def test_the_distribution_holds_the_four_layers_and_nothing_else():
    (call,) = (
        node
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup"
    )
    arguments = {keyword.arg: keyword.value for keyword in call.keywords}
    assert sorted(ast.literal_eval(arguments["packages"])) == sorted(LAYERS)
    assert [layer for layer in LAYERS if layer not in FILES] == []


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: path.name)
def test_what_is_deployed_imports_what_is_in_the_distribution(path):
    assert path.parent.parent == ROOT / "launch"
    assert not (path.parent / "__init__.py").exists()  # a package within would be left out of the distribution
    ours = {name for name in imported(ast.parse(path.read_text())) if name.split(".")[0] in LAYERS}
    beside = {each.stem for each in path.parent.glob("*.py")}
    assert [name for name in ours if not any(name == module or name.startswith(f"{module}.") for module in FILES)] == []
    assert not beside & {module.split(".")[0] for module in FILES}
