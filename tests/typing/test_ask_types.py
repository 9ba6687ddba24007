"""What ``ask`` returns is known to both type checkers from the request alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SNIPPET = """
from typing import Any, assert_type

from msgspec import Struct

from actors.kernel import Control, Finished, Failed, Outcome, Ref, Request, Stopped


class View(Struct, frozen=True):
    title: str


class GetView(Request[View], Control, frozen=True): ...


class Rename(Request[int], frozen=True, kw_only=True):
    title: str


Message = GetView | Rename


async def use(ref: Ref[Message], anything: Ref[Any], outcome: Outcome[int]) -> None:
    assert_type(await ref.ask(GetView()), View)
    assert_type(await anything.ask(Rename(title="x")), int)
    ref.tell(Rename(title="x"))
    match outcome:
        case Finished(value):
            assert_type(value, int)
        case Failed(error):
            assert_type(error, Exception)
        case Stopped(reason):
            assert_type(reason, str)
"""

WRONG = """
from actors.kernel import Ref, Request


class Count(Request[int], frozen=True): ...


async def use(ref: Ref[Count]) -> None:
    text: str = await ref.ask(Count())
    ref.tell("not a message of this actor")
"""


def check(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "snippet.py"
    file.write_text(code)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        str(file),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.stress
def test_ask_is_typed_by_its_request(tmp_path: Path) -> None:
    result = check(tmp_path, SNIPPET)
    assert result.returncode == 0, result.stdout


@pytest.mark.stress
def test_a_wrong_use_is_an_error(tmp_path: Path) -> None:
    result = check(tmp_path, WRONG)
    assert result.returncode == 1
    assert "snippet.py:9: error" in result.stdout, "a reply has the request's type"
    assert "snippet.py:10: error" in result.stdout, "a message must be one the actor takes"
