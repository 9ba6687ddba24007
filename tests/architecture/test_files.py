"""What every source file must satisfy: size, a module docstring, purity by name, no catch-all excepts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.layout import ROOT, imports, is_under, python_files, relative, repository_files, tree

LIMIT = 600
TABLES: tuple[str, ...] = ()
"""Files that are tables or frozen versions of a format, and may be longer."""
KERNEL_LIMIT = 1_450
TOP_LEVEL = {"pyproject.toml", "README.md", "LICENSE", "actors", "gateway", "tests", "bench", "docs"}
PURE = (
    "state.py",
    "plan.py",
    "policy.py",
    "patterns.py",
    "budget.py",
    "supervision.py",
    "transcript.py",
    "prompt.py",
)
IMPURE = ("trio", "time", "random", "secrets", "uuid", "os", "socket", "apsw", "actors.ids")
PRODUCT = python_files("actors", "gateway")


DECIDING = [path for path in PRODUCT if path.name in PURE and path.parent.name != "builtin"]


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Count the lines with code on them: no blank lines, comments or docstrings."""
    prose: set[int] = set()
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    text = path.read_text(encoding="utf-8").splitlines()
    code = (line for number, line in enumerate(text, 1) if number not in prose)
    return sum(1 for line in code if line.strip() and not line.lstrip().startswith("#"))


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    long = {
        relative(path): lines(path)
        for path in python_files("actors", "gateway", "tests", "bench", "docs")
        if relative(path) not in TABLES and lines(path) > LIMIT
    }
    assert not long


def test_exempt_files_exist_and_still_need_the_exemption() -> None:
    assert [name for name in TABLES if lines(ROOT / name) <= LIMIT] == []


def test_the_kernel_stays_small() -> None:
    assert sum(code_lines(path) for path in python_files("actors/kernel")) <= KERNEL_LIMIT


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_a_module_says_what_it_is_responsible_for(path: Path) -> None:
    text = ast.get_docstring(tree(path))
    assert text, f"{relative(path)} has no module docstring"
    first = text.partition("\n\n")[0].strip()
    assert first.endswith((".", ":", "?")), (
        f"{relative(path)}: the docstring's first paragraph is no sentence: {first!r}"
    )


@pytest.mark.parametrize("path", DECIDING, ids=relative)
def test_a_file_that_decides_takes_values_and_returns_values(path: Path) -> None:
    waiting = [
        f"{relative(path)}:{node.lineno}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncWith | ast.AsyncFor)
    ]
    reaching = [
        f"{relative(path)}:{line} imports {name}" for line, name in imports(path) if is_under(name, IMPURE)
    ]
    assert not waiting + reaching


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_nothing_catches_everything(path: Path) -> None:
    caught = [
        f"{relative(path)}:{node.lineno}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "BaseException"))
    ]
    assert not caught


def test_the_top_level_holds_only_the_agreed_names() -> None:
    names = {name.partition("/")[0] for name in repository_files()}
    assert {name for name in names if not name.startswith(".")} - TOP_LEVEL == set()
