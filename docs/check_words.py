"""Check docstrings and pages for words that CONTRIBUTING.md replaces: `python docs/check_words.py`. Exit code 1 if
any."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("recordmill/*.py", "pipelines/*.py", "transforms/**/*.py", "schemas/**/*.py", "launch/**/*.py")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "docs/decisions/*.md", "docs/tutorials/*.md")
HEAD = re.compile(r"(What|Of|That|Which|Those|Likewise|As|Whether it|They|Where) ")
WORD = re.compile(
    r"\b(anew|likewise|whatever|lest|is told|are told|of its own|as it is|as they are|those of which|that are there)\b",
    re.I,
)

found = []
for path in sorted(path for pattern in CODE for path in ROOT.glob(pattern)):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        note = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
        if isinstance(note, str) and (HEAD.match(note) or WORD.search(note)):
            found.append((path, node.lineno, note.split("\n")[0]))
for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found += [(path, number, line) for number, line in lines if WORD.search(line)]
for path, number, text in found:
    print(f"{path.relative_to(ROOT)}:{number}: {text[:120]}")
sys.exit(bool(found))
