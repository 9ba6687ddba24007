"""Looking at a repository without changing it or letting it run anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools.kit import build, call, context_in


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "f.txt").write_text("one\n")

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=Ann", "-c", "user.email=a@x", *arguments],
            cwd=root,
            check=True,
            capture_output=True,
        )

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "first")
    (root / "f.txt").write_text("one\ntwo\n")
    git("commit", "-am", "second")
    git("branch", "side")
    (root / "new").write_text("x")
    return root


async def run(root: Path, name: str, **arguments: object) -> str:
    return (await call(build("git"), name, context_in(root), **arguments)).output


async def test_repository_is_shown(repository: Path) -> None:
    assert await run(repository, "git_status") == "## main\n?? new\n"
    log = await run(repository, "git_log", limit=1)
    assert log.endswith("Ann: second\n")
    assert log.count("\n") == 1
    assert "first" in await run(repository, "git_log", ref="main~1", path="f.txt")
    assert "* main" in await run(repository, "git_branches")
    assert "side" in await run(repository, "git_branches")
    assert "+two" in await run(repository, "git_show", ref="HEAD")
    blame = await run(repository, "git_blame", path="f.txt")
    assert blame.count("Ann") == 2
    assert "two" not in await run(repository, "git_blame", path="f.txt", ref="HEAD~1")


@pytest.mark.parametrize("ref", ["--output=pwned", "-x", "", "a b", "a\nb", "nonsense"])
async def test_bad_names_of_commits_are_refused(repository: Path, ref: str) -> None:
    result = await call(build("git"), "git_show", context_in(repository), ref=ref)
    assert result.is_error
    assert not (repository / "pwned").exists()


async def test_paths_stay_in_the_working_directory(repository: Path) -> None:
    assert "outside" in await run(repository, "git_blame", path="../x")
    assert "outside" in await run(repository, "git_log", path="/etc")
    assert (await call(build("git"), "git_blame", context_in(repository), path="")).is_error


async def test_repository_cannot_make_git_run_programs(repository: Path) -> None:
    (repository / ".gitattributes").write_text("*.txt diff=evil\n")
    with (repository / ".git" / "config").open("a") as file:
        file.write(
            "[core]\n\tfsmonitor = touch pwned\n\tpager = touch pwned\n[diff]\n\texternal = touch pwned\n"
        )
        file.write('[diff "evil"]\n\ttextconv = touch pwned\n\tcommand = touch pwned\n')
    for name, arguments in {
        "git_status": {},
        "git_log": {},
        "git_branches": {},
        "git_show": {"ref": "HEAD"},
        "git_blame": {"path": "f.txt"},
    }.items():
        assert not (await call(build("git"), name, context_in(repository), **arguments)).is_error
    assert not (repository / "pwned").exists()


async def test_outside_a_repository_is_an_error(tmp_path: Path) -> None:
    assert "not a git repository" in await run(tmp_path, "git_status")
