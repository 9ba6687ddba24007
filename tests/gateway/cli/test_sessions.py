"""``greenroom sessions`` and ``greenroom check`` on real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from actors import open_runtime
from actors.session.messages import Template
from gateway.cli.enter import settings_for
from gateway.cli.main import main


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a database with one session of two messages."""
    path = tmp_path / "session.db"

    async def fill() -> None:
        async with open_runtime(settings_for(data_dir=tmp_path, session_db=str(path))) as runtime:
            view = await runtime.create(Template(title="Stored \x1b[2Jtalk"), session_id="s1")
            await runtime.session(view.id).set_title("Stored \x1b[2Jtalk")

    trio.run(fill)
    return path


def greenroom(database: Path, *words: str) -> int:
    return main(["sessions", *words, "--session-db", str(database), "--data-dir", str(database.parent)])


def test_the_list_has_a_line_for_every_session(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(database, "list") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("s1 ")
    assert "talk" in line
    assert "\x1b" not in line, "a stored title cannot command the terminal"


def test_the_list_as_json_is_the_api_s(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(database, "list", "--json") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["id"] == "s1"


def test_a_session_is_shown_and_exported(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(database, "show", "s1") == 0
    assert capsys.readouterr().out.startswith("# Stored ")
    assert greenroom(database, "export", "s1") == 0
    assert msgspec.json.decode(capsys.readouterr().out)["id"] == "s1"


def test_a_deleted_session_is_gone(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(database, "delete", "s1") == 0
    assert greenroom(database, "show", "s1") == 1
    assert "Traceback" not in capsys.readouterr().err


def test_deleting_an_unknown_session_is_one_line(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(database, "delete", "nope") == 1
    assert capsys.readouterr().err == "greenroom: session nope not found\n"


def test_looking_does_not_create_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert greenroom(tmp_path / "none.db", "list") == 1
    assert "no session database" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


def test_check_accepts_a_good_file(agent_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(agent_file)]) == 0
    assert capsys.readouterr().out == f"{agent_file}: ok (1 agent: root)\n"


def test_check_reports_every_problem_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("agents:\n  root:\n    modle: openai/gpt-4o-mini\n    instruction: 5x\n    tolsets: []\n")
    assert main(["check", str(path)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert any("modle" in line and ":3" in line for line in errors)
    assert any("tolsets" in line and ":5" in line for line in errors)
