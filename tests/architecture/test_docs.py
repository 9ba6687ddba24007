"""The documentation tells the truth where a test can find out: links, commands, examples, form."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs import generate
from tests.architecture.layout import ROOT, relative

DOCS = ROOT / "docs"
README = ROOT / "README.md"
GENERATED = {"routes.md", "errors.md", "settings.md", "events.md"}
REGENERATE = "run: python -m docs.generate"
PAGES = sorted(DOCS.rglob("*.md"))
PROSE = [page for page in PAGES if page.parent == DOCS and page.name not in GENERATED]
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
SECTIONS = ["Context", "Decision", "Rejected", "How we would notice that it was wrong", "What guards it"]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def headings(page: Path, level: int) -> list[str]:
    """Return the headings of one level, without those inside code blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", [README, ROOT / "bench" / "README.md", *PAGES], ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8"))]
    broken = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not broken


@pytest.mark.parametrize("page", PROSE, ids=relative)
def test_a_page_ends_with_what_is_not_promised(page: Path) -> None:
    assert headings(page, 2)[-1] == "What is not promised"


@pytest.mark.parametrize("page", DECISIONS, ids=relative)
def test_a_decision_has_the_form_of_one(page: Path) -> None:
    assert headings(page, 1)[0].startswith(page.name[:4] + ". ")
    assert headings(page, 2) == SECTIONS


def test_decisions_are_numbered_without_holes() -> None:
    assert [page.name[:4] for page in DECISIONS] == [f"{n:04}" for n in range(1, len(DECISIONS) + 1)]


def test_the_index_leads_to_every_page() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8") + README.read_text(encoding="utf-8")
    text += (DOCS / "protocol.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES if page.name != "index.md" and page.name not in text]
    assert not missing


def test_the_readme_and_ci_run_the_same_test_command() -> None:
    """CI takes the command from the README; this fails when it would no longer find exactly one."""
    commands = [line for line in README.read_text(encoding="utf-8").splitlines() if "-m pytest" in line]
    assert len(commands) == 1
    assert commands[0].startswith("python3 -m venv .venv && .venv/bin/pip install -e ")
    assert "grep -m1 -F -- '-m pytest' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_python_blocks_of_the_pages_are_valid_python() -> None:
    for page in [README, *PAGES]:
        for block in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            ast.parse(block, filename=relative(page))


def test_the_embedding_page_shows_the_example_that_is_run() -> None:
    code = (DOCS / "examples" / "embedded.py").read_text(encoding="utf-8").split('"""\n', 1)[1].strip()
    assert code in (DOCS / "embedding.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == generate.pages()[name], REGENERATE
