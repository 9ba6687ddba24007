"""The kernel's page tells the truth: its example runs, its tests exist, every guarantee has one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernel.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    match = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    command = [sys.executable, "-W", "error", "-c", match[1]]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("0\nFinished(value=3)\n3\n", "")


def test_every_guarantee_names_tests_that_exist() -> None:
    sources = [
        *(ROOT / "tests" / "kernel").glob("test_*.py"),
        *(ROOT / "tests" / "properties").glob("test_*.py"),
    ]
    defined = set(
        re.findall(r"def (test_k\d+_\w+)", "".join(path.read_text(encoding="utf-8") for path in sources))
    )
    named = set(re.findall(r"`(test_k\d+_\w+)`", PAGE))
    assert named <= defined
    assert {name.split("_")[1] for name in named} == {f"k{number}" for number in range(1, 15)}
