"""Mutation testing: draw mutants by seed, find the tests that execute each, and run those.

    python -m tests.mutants draw --seed 35 --count 150 [--since REV] [--only PATH ...] [--skip PATH ...] > mutants.json
    python -m tests.mutants trace mutants.json -- -n 2 tests/transforms > hits.json
    python -m tests.mutants run mutants.json hits.json > results.jsonl

`trace` and `run` edit the source files and restore them, so run them in a clone. A mutant is known by its file,
function, kind, source text and ordinal, so that it can be found again after other lines have changed. `draw --since`
takes only lines that were added since a revision.
"""

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
CODE = ("recordmill", "pipelines", "transforms", "schemas", "launch")
MAX_TEST_SECONDS = 120  # per mutant; the fastest tests run first
COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
TESTS = {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.And: "or", ast.Or: "and"}
NUMBERS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.LShift: ">>"}
SWAPS: dict[type, str] = COMPARISONS | TESTS | NUMBERS  # type: ignore[operator]
HITS = """
import contextlib
import os
_seen = set()
def hit(number):
    key = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if key not in _seen:
        _seen.add(key)
        with contextlib.suppress(OSError), open(os.environ["MUTANT_HITS"], "a") as file:  # tests may be another user
            file.write(f"{key[0]}\\t{key[1]}\\n")
"""
Mutant = dict[str, Any]


def _replacement(node: ast.AST) -> tuple[ast.AST, str] | None:
    """Return the node to replace and its new source, None if the node has no mutant."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        return node, f"({ast.unparse(node.left)} {SWAPS[type(node.ops[0])]} {ast.unparse(node.comparators[0])})"
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not isinstance(node.left, ast.Constant):
        return node, f"({ast.unparse(node.left)} {SWAPS[type(node.op)]} {ast.unparse(node.right)})"
    if isinstance(node, ast.BoolOp):
        return node, "(" + f" {SWAPS[type(node.op)]} ".join(f"({ast.unparse(value)})" for value in node.values) + ")"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node, f"bool({ast.unparse(node.operand)})"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        return node, str(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        return node.test, f"(not ({ast.unparse(node.test)}))"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return node, "pass"
    if isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
        return node.value, "None"
    return None


def _mutants(path: str, source: str) -> Iterator[tuple[Mutant, ast.AST, ast.stmt]]:
    """Yield each possible mutant within functions, with the node that it replaces and the statement that holds it."""
    seen: Counter[tuple[str, ...]] = Counter()

    def walk(node: ast.AST, names: tuple[str, ...], statement: ast.stmt | None) -> Iterator[Any]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_params", "args"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                inner = child if isinstance(child, ast.stmt) else statement
                yield from walk(child, (*names, child.name) if is_named else names, inner)
                found = _replacement(child) if names and inner else None
                if found and found[0].lineno == found[0].end_lineno:  # type: ignore[attr-defined]
                    key = ".".join(names), type(child).__name__, ast.unparse(found[0]), found[1]
                    seen[key] += 1
                    mutant = dict(zip(("function", "kind", "old", "new"), key, strict=True))
                    yield mutant | {"path": path, "ordinal": seen[key]}, found[0], inner

    yield from walk(ast.parse(source), (), None)


def _find(mutant: Mutant) -> tuple[str, Any, ast.stmt] | None:
    """Return the source of the mutant's file, the node and its statement; None if the line has gone."""
    path = ROOT / mutant["path"]
    source = path.read_text() if path.is_file() else ""
    for found, node, statement in _mutants(mutant["path"], source):
        if all(found[key] == mutant[key] for key in found):
            return source, node, statement
    return None


def draw(seed: int, count: int, since: str | None, only: list[str], skip: list[str]) -> list[Mutant]:
    """Return mutants drawn from all lines of code, or from those added since a revision, of files whose paths start
    with one of `only`, if given, and none of `skip`."""
    found = []
    for path in sorted(p for folder in CODE for p in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if any(map(name.startswith, skip)) or (only and not any(map(name.startswith, only))):
            continue
        added = _added(name, since) if since else None
        for mutant, node, _ in _mutants(name, path.read_text()):
            if added is None or node.lineno in added:  # type: ignore[attr-defined]
                found.append(mutant)
    drawn = random.Random(seed).sample(found, min(count, len(found)))
    return [mutant | {"number": number} for number, mutant in enumerate(drawn)]


def _added(name: str, since: str) -> set[int]:
    diff = subprocess.check_output(["git", "diff", "-U0", since, "--", name], cwd=ROOT, text=True)
    spans = re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))?", diff, re.MULTILINE)
    return {int(start) + i for start, length in spans for i in range(int(length or 1))}


def trace(mutants: list[Mutant], pytest_arguments: list[str]) -> dict[int, dict[str, float]]:
    """Run the tests once with a probe at each mutant; return the tests that execute it, with their seconds."""
    probes: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for mutant in mutants:
        if found := _find(mutant):
            source, _, statement = found
            line, text = statement.lineno, source.splitlines()
            while re.match(r"\s*(elif|else|except|case)\b", text[line - 1]):  # the probe goes before the `if`
                line -= 1
                while not re.match(r"\s*(if|elif|for|while|try|match)\b", text[line - 1]):
                    line -= 1
            probes[mutant["path"]].append((line, mutant["number"], 0))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mutant_hits.py").write_text(HITS)
        hits, report = Path(folder, "hits"), Path(folder, "report.xml")
        hits.touch()
        paths = os.pathsep.join((folder, os.environ.get("PYTHONPATH", "")))
        environment = os.environ | {"MUTANT_HITS": str(hits), "PYTHONPATH": paths}
        originals = {path: (ROOT / path).read_text() for path in probes}
        try:
            for path, marks in probes.items():
                lines = originals[path].splitlines()
                for line, number, _ in sorted(marks, reverse=True):
                    indent = re.match(r"\s*", lines[line - 1]).group()  # type: ignore[union-attr]
                    lines.insert(line - 1, f'{indent}__import__("mutant_hits").hit({number})')
                (ROOT / path).write_text("\n".join(lines) + "\n")
            arguments = [*pytest_arguments, f"--junitxml={report}", "-o", "junit_family=xunit1"]
            subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment, stdout=sys.stderr)
        finally:
            for path, text in originals.items():
                (ROOT / path).write_text(text)
        cases = ElementTree.parse(report).iter("testcase")
        seconds = {f"{case.get('file')}::{case.get('name')}": float(case.get("time", 0)) for case in cases}
        rows = [line.split("\t") for line in hits.read_text().splitlines()]
    found = defaultdict(dict)
    for number, test in rows:
        if test:
            found[int(number)][test] = seconds.get(re.sub(r"::.*::", "::", test), 1.0)
    return found


def run(mutants: list[Mutant], hits: dict[str, dict[str, float]], killers: dict[str, str]) -> Iterator[Mutant]:
    """Yield each mutant with its state: gone, uncovered, killed (and by which test), lived. Known killers run first."""
    for mutant in mutants:
        found = _find(mutant)
        if not found:
            yield mutant | {"state": "gone"}
            continue
        tests, spent = [], 0.0
        for test, seconds in sorted(hits.get(str(mutant["number"]), {}).items(), key=lambda item: item[1]):
            if spent < MAX_TEST_SECONDS:
                tests.append(test)
                spent += seconds
        first = [test for test in tests if test == killers.get(str(mutant["number"]))]
        if not tests:
            yield mutant | {"state": "uncovered"}
            continue
        source, node, _ = found
        lines = source.encode().splitlines(keepends=True)
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + mutant["new"].encode() + line[node.end_col_offset :]
        path = ROOT / mutant["path"]
        try:
            path.write_bytes(b"".join(lines))
            # Few tests first: pytest imports all their modules before it runs the first one.
            batches = first, tests[:12], tests[12:60], tests[60:]
            killer = next((failed for batch in batches if (failed := _first_failure(batch))), None)
        finally:
            path.write_text(source)
        yield mutant | ({"state": "killed", "killer": killer} if killer else {"state": "lived"})


def _first_failure(tests: list[str]) -> str | None:
    if not tests:
        return None
    arguments = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-rfE", *tests]
    try:
        process = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=10 * MAX_TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return "timeout"
    match = re.search(r"^(?:FAILED|ERROR) (\S+.*?)(?: - .*)?$", process.stdout, re.MULTILINE)
    return match.group(1) if match else None if process.returncode == 0 else f"exit code {process.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, required=True)
    drawing.add_argument("--since")
    drawing.add_argument("--only", nargs="*", default=[])
    drawing.add_argument("--skip", nargs="*", default=[])
    tracing = verbs.add_parser("trace")
    tracing.add_argument("mutants")
    tracing.add_argument("pytest_arguments", nargs="*")
    running = verbs.add_parser("run")
    running.add_argument("mutants")
    running.add_argument("hits")
    running.add_argument("--before", help="results of an earlier run, whose killers run first")
    arguments = parser.parse_args()
    if arguments.verb == "draw":
        print(
            json.dumps(draw(arguments.seed, arguments.count, arguments.since, arguments.only, arguments.skip), indent=1)
        )
        return
    mutants = json.loads(Path(arguments.mutants).read_text())
    if arguments.verb == "trace":
        print(json.dumps(trace(mutants, arguments.pytest_arguments)))
        return
    before = Path(arguments.before).read_text().splitlines() if arguments.before else []
    killers = {str(mutant["number"]): mutant.get("killer", "") for mutant in map(json.loads, before)}
    states: Counter[str] = Counter()
    for mutant in run(mutants, json.loads(Path(arguments.hits).read_text()), killers):
        print(json.dumps(mutant), flush=True)
        states[mutant["state"]] += 1
    print(dict(states), file=sys.stderr)


if __name__ == "__main__":
    main()
