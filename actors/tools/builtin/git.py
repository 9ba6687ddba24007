"""The ``git`` toolset: looking at a repository through the ``git`` program, never changing it."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from actors.tools.builtin.shell import base_environment, describe_exit
from actors.tools.builtin.toolset import Builtin
from actors.tools.options import GitOptions
from actors.tools.process import run_process
from actors.tools.text import Excerpt
from actors.tools.tool import ToolContext, ToolError
from actors.tools.workspace import Workspace

_SECONDS = 30.0
_MOST_COMMITS = 500
# Nothing the repository configures may run: no hooks, monitors, external diffs, filters by pager, or other protocols.
_SAFE = (
    "--no-pager", "--no-optional-locks", "--literal-pathspecs",
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
    "-c", "diff.external=", "-c", "log.showSignature=false",
    "-c", "core.quotePath=false", "-c", "protocol.allow=never", "-c", "color.ui=false",
)  # fmt: skip
_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")


class Git(Builtin):
    """Read-only git."""

    name = "git"

    def __init__(self, _options: GitOptions) -> None:
        super().__init__()
        for function in (self.git_status, self.git_log, self.git_branches, self.git_show, self.git_blame):
            self.offer(function)

    async def git_status(self, context: ToolContext) -> str:
        """Show the branch and the changed files."""
        return await _git(context, "status", "--short", "--branch", "--ignore-submodules=all")

    async def git_log(self, context: ToolContext, limit: int = 20, ref: str = "", path: str = "") -> str:
        """List commits, newest first.

        Args:
            limit: How many.
            ref: Branch, tag, commit or range to start from; the current branch if left out.
            path: Only commits that changed this file or directory.
        """
        count = min(max(limit, 1), _MOST_COMMITS)
        arguments = [
            "log",
            f"--max-count={count}",
            "--date=iso-strict",
            "--format=%h %ad %an: %s",
            *_NO_PROGRAMS,
        ]
        return await _git(context, *arguments, *([_ref(ref)] if ref else []), "--", *_paths(context, path))

    async def git_branches(self, context: ToolContext) -> str:
        """List local and remote branches; the current one is marked."""
        line = "%(HEAD) %(refname:short) %(objectname:short) %(contents:subject)"
        return await _git(context, "branch", "--list", "--all", f"--format={line}")

    async def git_show(self, ref: str, context: ToolContext, path: str = "") -> str:
        """Show a commit with its changes.

        Args:
            ref: The commit, branch or tag.
            path: Only the changes of this file or directory.
        """
        return await _git(
            context, "show", "--stat", "--patch", *_NO_PROGRAMS, _ref(ref), "--", *_paths(context, path)
        )

    async def git_blame(self, path: str, context: ToolContext, ref: str = "") -> str:
        """Show which commit last changed each line of a file.

        Args:
            path: The file.
            ref: As of this commit; the working directory if left out.
        """
        if not path:
            raise ToolError("the path is empty")
        arguments = ["blame", "--no-textconv", "--date=short", *([_ref(ref)] if ref else [])]
        return await _git(context, *arguments, "--", *_paths(context, path))


def _ref(text: str) -> str:
    if not text or text.startswith("-") or any(char.isspace() or char < " " for char in text):
        raise ToolError(f"{text!r} is not the name of a commit, branch, tag or range")
    return text


def _paths(context: ToolContext, text: str) -> list[str]:
    """Return a path relative to the working directory, as arguments for git."""
    if not text:
        return []
    workspace = Workspace(context.working_dir)
    return [workspace.shown(workspace.place(text))]


async def _git(context: ToolContext, *arguments: str) -> str:
    excerpt = Excerpt()
    environment = {
        name: value for name, value in base_environment(context).items() if not name.startswith("GIT_")
    }
    ended = await run_process(
        ["git", *_SAFE, *arguments],
        cwd=context.working_dir,
        env={
            **environment,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": str(context.working_dir.parent),
        },
        seconds=_SECONDS,
        on_output=excerpt.feed,
    )
    excerpt.finish()
    if ended.timed_out:
        raise ToolError(f"git {arguments[0]} did not end within {_SECONDS:g} s")
    if ended.code:
        raise ToolError(f"git {arguments[0]}: {describe_exit(ended.code)}: {excerpt.text().strip()}")
    return excerpt.text()
