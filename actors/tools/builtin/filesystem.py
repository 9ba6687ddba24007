"""The ``filesystem`` toolset: reading, writing, editing, listing and searching files of the workspace."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import base64
import fnmatch
from collections.abc import Mapping
from pathlib import Path

import msgspec
import trio
from msgspec import Struct

from actors.tools.builtin.ignore import Ignore
from actors.tools.builtin.search import Search
from actors.tools.builtin.toolset import DESTRUCTIVE, READ_ONLY, WRITES, Builtin
from actors.tools.options import FilesystemOptions
from actors.tools.process import run_process, shell_command
from actors.tools.text import Excerpt
from actors.tools.textfile import TextFile, decode, replace_once
from actors.tools.tool import Media, ToolContext, ToolError, ToolResult
from actors.tools.workspace import (
    Place,
    Workspace,
    list_entries,
    open_directory,
    parent_of,
    read_bytes,
    remove_tree,
    translated,
    walk,
    write_bytes,
)

READ_LIMIT = 10_000_000
"""Bytes of a file that is read or edited."""

_IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_IMAGE_LIMIT = 5_000_000
_TREE_ENTRIES = 2000
_LIST_ENTRIES = 5000
_HOOK_SECONDS = 60.0
_HOOK_OUTPUT = 4000


class Edit(Struct, frozen=True, rename="camel"):
    """One replacement: the exact text to find, which must occur once, and what to put there."""

    old_text: str
    new_text: str


class Filesystem(Builtin):
    """Tools for the files below the working directory and the option's ``allow_list``."""

    name = "filesystem"
    text = (
        "Paths are relative to the working directory. Read a file before you edit it. "
        "Prefer edit_file to write_file for changes to existing files."
    )

    def __init__(self, options: FilesystemOptions) -> None:
        super().__init__()
        self._options = options
        self.offer(self.read_file)
        self.offer(self.read_multiple_files)
        self.offer(self.write_file, WRITES)
        self.offer(self.edit_file, WRITES)
        self.offer(self.list_directory)
        self.offer(self.directory_tree)
        self.offer(self.search_files_content, READ_ONLY, rename={"exclude_patterns": "excludePatterns"})
        self.offer(self.create_directory, WRITES)
        self.offer(self.remove_directory, DESTRUCTIVE)

    def _workspace(self, context: ToolContext) -> Workspace:
        return Workspace(context.working_dir, self._options.allow_list, self._options.deny_list)

    def read_file(
        self, path: str, context: ToolContext, line: int | None = None, limit: int | None = None
    ) -> ToolResult:
        """Read a text file, or look at an image.

        Args:
            path: The file.
            line: First line to return, counted from 1.
            limit: How many lines to return.
        """
        return _read(self._workspace(context), path, line, limit)

    def read_multiple_files(self, paths: list[str], context: ToolContext, json: bool = False) -> str:
        """Read several text files at once. A file that cannot be read does not stop the others.

        Args:
            paths: The files.
            json: Return a JSON array of {path, content} instead of text.
        """
        workspace = self._workspace(context)
        contents: list[dict[str, str]] = []
        for path in paths:
            try:
                contents.append({"path": path, "content": _load(workspace, path)[1].shown()})
            except ToolError as error:
                contents.append({"path": path, "content": f"Error: {error.message}"})
        if json:
            return msgspec.json.encode(contents).decode()
        return "\n\n".join(f"=== {item['path']} ===\n{item['content']}" for item in contents)

    async def write_file(self, path: str, content: str, context: ToolContext) -> str:
        """Write a file, replacing what it held; missing directories are made.

        Args:
            path: The file.
            content: Its whole new content.
        """
        workspace = self._workspace(context)

        def write() -> Place:
            place = workspace.place(path)
            write_bytes(place, path, content.encode())
            return place

        # Not abandoned on cancellation, so that no write happens after the call has ended.
        place = await trio.to_thread.run_sync(write)
        notes = await self._after_edit(place, context)
        return f"File written: {path} ({len(content)} characters).{notes}"

    async def edit_file(self, path: str, edits: list[Edit], context: ToolContext) -> str:
        """Replace pieces of a text file. All edits are made, in order, or none.

        Args:
            path: The file.
            edits: Replacements; each oldText must occur exactly once in the file at that point.
        """
        if not edits:
            raise ToolError("no edits were given")
        workspace = self._workspace(context)

        def edit() -> Place:
            place, file = _load(workspace, path)
            for number, change in enumerate(edits, 1):
                try:
                    file = replace_once(file, change.old_text, change.new_text, path)
                except ToolError as error:
                    raise ToolError(f"edit {number}: {error.message}; the file is unchanged") from error
            write_bytes(place, path, file.encode())
            return place

        place = await trio.to_thread.run_sync(edit)
        notes = await self._after_edit(place, context)
        return f"File edited: {path} ({len(edits)} {'edit' if len(edits) == 1 else 'edits'}).{notes}"

    def list_directory(self, path: str, context: ToolContext) -> str:
        """List a directory: one line per entry, directories first.

        Args:
            path: The directory; "." is the working directory.
        """
        workspace = self._workspace(context)
        place = workspace.place(path)
        with translated(path):
            entries = list_entries(place)
        ignore = Ignore(workspace, place, vcs=self._options.ignore_vcs)
        ignore.enter(place)
        lines = [
            f"{_LIST_WORDS.get(entry.kind, 'FILE')} {entry.name}"
            for entry in entries
            if not ignore.skips(Place(place.root, (*place.names, entry.name)), entry)
        ]
        if len(lines) > _LIST_ENTRIES:
            lines[_LIST_ENTRIES:] = [f"... and {len(lines) - _LIST_ENTRIES} more"]
        return "\n".join(lines)

    def directory_tree(self, path: str, context: ToolContext) -> str:
        """Return a directory and everything below it as indented lines.

        Args:
            path: The directory; "." is the working directory.
        """
        workspace = self._workspace(context)
        place = workspace.place(path)
        with translated(path), open_directory(place):
            pass  # a missing directory is an error, not an empty tree
        lines = [f"{workspace.shown(place)}/"]
        for below, entry in walk(place, Ignore(workspace, place, vcs=self._options.ignore_vcs)):
            if len(lines) > _TREE_ENTRIES:
                lines.append(f"... cut off after {_TREE_ENTRIES} entries")
                break
            depth = len(below.names) - len(place.names)
            lines.append("  " * depth + entry.name + ("/" if entry.kind == "directory" else ""))
        return "\n".join(lines)

    def search_files_content(
        self,
        path: str,
        query: str,
        context: ToolContext,
        is_regex: bool = False,
        exclude_patterns: list[str] = [],  # noqa: B006 - copied by msgspec for every call
    ) -> str:
        """Search the text files below a directory, or one file; returns path:line: text.

        Args:
            path: Where to search.
            query: The text, or the regular expression (RE2 syntax), to find within a line.
            is_regex: Whether the query is a regular expression.
            exclude_patterns: Files and directories to leave out, written as in .gitignore.
        """
        workspace = self._workspace(context)
        place = workspace.place(path)
        search = Search(workspace, query, is_regex=is_regex)
        search.run(
            place, path, Ignore(workspace, place, vcs=self._options.ignore_vcs, excluded=exclude_patterns)
        )
        return search.report()

    def create_directory(self, paths: list[str], context: ToolContext) -> str:
        """Make directories, with their parents; existing ones are left as they are.

        Args:
            paths: The directories.
        """
        workspace = self._workspace(context)
        places = [workspace.place(path) for path in paths]
        for path, place in zip(paths, places, strict=True):
            with translated(path), open_directory(place, create=True):
                pass
        return f"Created: {', '.join(paths)}"

    def remove_directory(self, paths: list[str], context: ToolContext) -> str:
        """Delete directories with everything in them.

        Args:
            paths: The directories.
        """
        workspace = self._workspace(context)
        places: list[Place] = []
        for path in paths:
            place = workspace.place(path)
            if place.path == workspace.working_dir or workspace.working_dir.is_relative_to(place.path):
                raise ToolError(f"{path}: the working directory itself cannot be removed")
            if Path(workspace.working_dir / path).is_symlink():
                raise ToolError(f"{path}: this is a link, not a directory")
            if workspace.contains_denied(place):
                raise ToolError(f"{path}: it contains a path to which access is denied")
            parent_of(place, path)
            places.append(place)
        for path, place in zip(paths, places, strict=True):
            remove_tree(place, path)
        return f"Removed: {', '.join(paths)}"

    async def _after_edit(self, place: Place, context: ToolContext) -> str:
        """Run the ``post_edit`` commands for a file; return what to tell the model about failures."""
        notes = ""
        for hook in self._options.post_edit:
            name = "/".join(place.names)
            if not (fnmatch.fnmatch(place.names[-1], hook.path) or fnmatch.fnmatch(name, hook.path)):
                continue
            excerpt = Excerpt(_HOOK_OUTPUT)
            environment: Mapping[str, str] = {**context.env, "path": str(place.path)}
            ended = await run_process(
                shell_command(hook.cmd),
                cwd=context.working_dir,
                env=environment,
                seconds=_HOOK_SECONDS,
                on_output=excerpt.feed,
            )
            if ended.timed_out:
                notes += f"\nThe post-edit command `{hook.cmd}` did not end within {_HOOK_SECONDS:.0f} s."
            elif ended.code:
                notes += f"\nThe post-edit command `{hook.cmd}` failed ({ended.code}):\n{excerpt.text()}"
        return notes


_LIST_WORDS = {"directory": "DIR", "link": "LINK"}


def _load(workspace: Workspace, path: str) -> tuple[Place, TextFile]:
    place = workspace.place(path)
    data, _ = read_bytes(place, path, READ_LIMIT)
    return place, decode(data, path)


def _read(workspace: Workspace, path: str, line: int | None, limit: int | None) -> ToolResult:
    place = workspace.place(path)
    if media_type := _IMAGE_TYPES.get(place.path.suffix.lower()):
        data, _ = read_bytes(place, path, _IMAGE_LIMIT)
        image = Media("image", media_type, data=base64.b64encode(data).decode(), name=place.names[-1])
        return ToolResult(f"Image {path} ({len(data)} bytes)", media=(image,))
    _, file = _load(workspace, path)
    text = file.shown()
    if line is None and limit is None:
        return ToolResult(text)
    if (line is not None and line < 1) or (limit is not None and limit < 1):
        raise ToolError("'line' and 'limit' count from 1")
    lines = text.splitlines(keepends=True)
    first = (line or 1) - 1
    if first >= len(lines) and first > 0:
        raise ToolError(f"{path}: the file has only {len(lines)} lines")
    chosen = lines[first : None if limit is None else first + limit]
    return ToolResult("".join(chosen), meta={"line": first + 1, "total_lines": len(lines)})
