"""Files: containment, links, races, encodings, whole writes, listings and searches."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from actors.tools.tool import ToolContext, ToolError, ToolResult, Toolset
from actors.tools.workspace import Place, Workspace, read_bytes, write_bytes
from tests.tools.kit import build, call, context_in, sample

SECRET = "the secret of the neighbour"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace ``ws/agent`` with a sibling ``ws/agent-two`` that holds a secret."""
    root = tmp_path / "ws" / "agent"
    root.mkdir(parents=True)
    sibling = tmp_path / "ws" / "agent-two"
    sibling.mkdir()
    (sibling / "secret.txt").write_text(SECRET)
    return root


class Files:
    """The filesystem tools in one workspace."""

    def __init__(self, root: Path, **options: object) -> None:
        self.toolset: Toolset = build("filesystem", **options)
        self.context: ToolContext = context_in(root)

    async def __call__(self, name: str, **arguments: object) -> ToolResult:
        return await call(self.toolset, name, self.context, **arguments)


def snapshot(root: Path) -> dict[str, bytes]:
    """Return everything outside the workspace, to see that nothing of it changed."""
    outside = root.parent / "agent-two"
    return {str(path): path.read_bytes() for path in sorted(outside.rglob("*")) if path.is_file()} | {
        "names": b"|".join(sorted(os.fsencode(path.name) for path in root.parent.iterdir()))
    }


@pytest.mark.parametrize("path", sample("files/traversal_paths.txt"))
async def test_no_spelling_of_a_path_leads_outside(workspace: Path, path: str) -> None:
    files, before = Files(workspace), snapshot(workspace)
    path = path.encode("utf-8", "replace").decode()
    for tool, arguments in {
        "read_file": {"path": path},
        "read_multiple_files": {"paths": [path]},
        "search_files_content": {"path": path, "query": "secret"},
        "write_file": {"path": path, "content": "overwritten"},
        "edit_file": {"path": path, "edits": [{"oldText": "secret", "newText": "x"}]},
    }.items():
        result = await files(tool, **arguments)
        assert SECRET not in result.output
    for tool in ("list_directory", "directory_tree"):
        result = await files(tool, path=path)
        assert result.is_error or "secret.txt" not in result.output
    await files("create_directory", paths=[path])
    await files("remove_directory", paths=[path])
    assert snapshot(workspace) == before
    assert workspace.is_dir()


async def test_paths_outside_are_refused_in_words(workspace: Path) -> None:
    files = Files(workspace)
    for path in ("..", "/etc/hostname", "../agent-two/secret.txt", "a/../../agent-two/secret.txt"):
        assert "outside the working directory" in (await files("read_file", path=path)).output
    assert "empty" in (await files("read_file", path="")).output
    assert "not expanded" in (await files("read_file", path="~/secret.txt")).output
    assert "not a URL" in (await files("read_file", path="file:///etc/hostname")).output
    assert "top of the workspace" in (await files("read_file", path=".")).output


@pytest.mark.parametrize("name", sample("files/hostile_names.txt"))
async def test_hostile_names_are_refused_or_handled_alike_by_every_tool(workspace: Path, name: str) -> None:
    files = Files(workspace)
    name = name.replace("\\x01", "\x01").replace("\\r\\n", "\r\n").replace("\\t", "\t").replace("\0", "")
    clean = name.encode("utf-8", "replace").decode()
    written = await files("write_file", path=clean, content="body")
    if written.is_error:
        assert not list(workspace.iterdir())
        assert (await files("read_file", path=clean)).is_error
        return
    assert [path.name for path in workspace.iterdir()] == [clean]
    assert (await files("read_file", path=clean)).output == "body"
    assert (await files("list_directory", path=".")).output == f"FILE {clean}"


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x1bb", "x" * 256, "😀" * 64])
async def test_names_that_no_system_should_hold_are_refused(workspace: Path, name: str) -> None:
    assert (await Files(workspace)("write_file", path=name, content="x")).is_error
    assert not list(workspace.iterdir())


async def test_links_out_of_the_workspace_are_not_followed(workspace: Path) -> None:
    (workspace / "file").symlink_to("../agent-two/secret.txt")
    (workspace / "dir").symlink_to("../agent-two")
    (workspace / "chain").symlink_to("dir")
    (workspace / "etc").symlink_to("/etc")
    (workspace / "zero").symlink_to("/dev/zero")
    files, before = Files(workspace), snapshot(workspace)
    for path in ("file", "dir/secret.txt", "chain/secret.txt", "etc/hostname", "zero"):
        assert "outside" in (await files("read_file", path=path)).output
        assert (await files("write_file", path=path, content="x")).is_error
        assert (await files("edit_file", path=path, edits=[{"oldText": "the", "newText": "x"}])).is_error
    for path in ("dir", "chain", "etc"):
        assert (await files("list_directory", path=path)).is_error
        assert (await files("remove_directory", paths=[path])).is_error
    assert (await files("write_file", path="dir/new", content="x")).is_error
    assert (await files("create_directory", paths=["dir/new"])).is_error
    assert SECRET not in (await files("search_files_content", path=".", query="secret")).output
    assert "LINK dir" in (await files("list_directory", path=".")).output
    assert "secret.txt" not in (await files("directory_tree", path=".")).output
    assert snapshot(workspace) == before


async def test_links_inside_the_workspace_work_and_stay_links(workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "real" / "a").write_text("old")
    (workspace / "link").symlink_to("real")
    files = Files(workspace)
    assert (await files("read_file", path="link/a")).output == "old"
    assert not (await files("write_file", path="link/a", content="new")).is_error
    assert (workspace / "real" / "a").read_text() == "new"
    assert (workspace / "link").is_symlink()
    assert "is a link" in (await files("remove_directory", paths=["link"])).output


def test_link_swapped_in_between_check_and_use_leads_nowhere(workspace: Path) -> None:
    space = Workspace(workspace)
    (workspace / "d").mkdir()
    (workspace / "d" / "secret.txt").write_text("mine")
    place = space.place("d/secret.txt")
    (workspace / "d").rename(workspace / "old")
    (workspace / "d").symlink_to("../agent-two")
    with pytest.raises(ToolError):
        read_bytes(place, "d/secret.txt", 1000)
    with pytest.raises(ToolError):
        write_bytes(place, "d/secret.txt", b"x")
    (workspace / "d").unlink()
    (workspace / "d").mkdir()
    (workspace / "d" / "secret.txt").symlink_to("../../agent-two/secret.txt")
    with pytest.raises(ToolError):
        read_bytes(place, "d/secret.txt", 1000)
    with pytest.raises(ToolError):
        write_bytes(place, "d/secret.txt", b"x")
    assert (workspace.parent / "agent-two" / "secret.txt").read_text() == SECRET


def test_racing_link_never_gives_a_byte_from_outside(workspace: Path) -> None:
    space = Workspace(workspace)
    good, bad, name = workspace / "good", workspace / "bad", workspace / "d"
    good.mkdir()
    (good / "secret.txt").write_text("mine")
    bad.symlink_to("../agent-two")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("good", "../agent-two"):
                temporary = workspace / "t"
                temporary.symlink_to(target)
                temporary.rename(name)

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        for _ in range(300):
            try:
                data, _ = read_bytes(space.place("d/secret.txt"), "d/secret.txt", 1000)
                assert data in {b"mine", b"written"}
                write_bytes(space.place("d/secret.txt"), "d/secret.txt", b"written")
            except ToolError:
                continue
    finally:
        stop.set()
        racer.join()
    assert (workspace.parent / "agent-two" / "secret.txt").read_text() == SECRET


async def test_allow_and_deny_lists(workspace: Path) -> None:
    two = workspace.parent / "agent-two"
    (two / "inner").mkdir()
    (two / "inner" / "key").write_text("k")
    files = Files(workspace, allow_list=[str(two)], deny_list=["../agent-two/inner", "private"])
    (workspace / "private").mkdir()
    (workspace / "private" / "p").write_text("needle")
    assert (await files("read_file", path="../agent-two/secret.txt")).output == SECRET
    assert "denied" in (await files("read_file", path="../agent-two/inner/key")).output
    assert "denied" in (await files("read_file", path="private/p")).output
    assert "private" not in (await files("list_directory", path=".")).output
    assert "No matches" in (await files("search_files_content", path=".", query="needle")).output
    assert "denied" in (await files("remove_directory", paths=[str(two)])).output
    assert (two / "inner" / "key").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"caf\xe9 one\nline two\n", b"caf\xe9 one\nline 2\n"),
        ("проверка\nline two\n".encode("cp1251"), "проверка\nline 2\n".encode("cp1251")),
        (b"a\r\nline two\r\nb\n", b"a\r\nline 2\r\nb\n"),
        (b"\xef\xbb\xbfline two\n", b"\xef\xbb\xbfline 2\n"),
        ("\ufeffa\r\nline two".encode("utf-16-le"), "\ufeffa\r\nline 2".encode("utf-16-le")),
        ("\ufeffline two 😀".encode("utf-16-be"), "\ufeffline 2 😀".encode("utf-16-be")),
        ("line two plain text".encode("utf-16-le"), "line 2 plain text".encode("utf-16-le")),
        ("😀 line two\n".encode(), "😀 line 2\n".encode()),
        (b"line two\x0c\x1b[0m", b"line 2\x0c\x1b[0m"),
    ],
)
async def test_edit_leaves_every_other_byte_alone(workspace: Path, before: bytes, after: bytes) -> None:
    (workspace / "f").write_bytes(before)
    result = await Files(workspace)(
        "edit_file", path="f", edits=[{"oldText": "line two", "newText": "line 2"}]
    )
    assert not result.is_error
    assert (workspace / "f").read_bytes() == after


async def test_edit_over_several_lines_matches_and_keeps_windows_line_ends(workspace: Path) -> None:
    (workspace / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    files = Files(workspace)
    await files("edit_file", path="f", edits=[{"oldText": "a\nb", "newText": "x\ny\nz"}])
    assert (workspace / "f").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"
    assert (await files("read_file", path="f")).output == "x\ny\nz\nc\n"


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        ([], "no edits"),
        ([{"oldText": "", "newText": "x"}], "oldText is empty"),
        ([{"oldText": "nothing", "newText": "x"}], "edit 1: f: old text not found"),
        ([{"oldText": "o", "newText": "x"}], "more than once"),
        (
            [{"oldText": "one", "newText": "1"}, {"oldText": "one", "newText": "x"}],
            "edit 2: f: old text not found",
        ),
        ([{"oldText": "one", "newText": "я"}], "cannot hold 'я'"),
        ([{"oldText": "one"}], "newText"),
    ],
)
async def test_edit_that_cannot_be_made_leaves_the_file_untouched(
    workspace: Path, edits: list[dict[str, str]], problem: str
) -> None:
    (workspace / "f").write_bytes(b"one o \xff two\n")
    result = await Files(workspace)("edit_file", path="f", edits=edits)
    assert result.is_error
    assert problem in result.output
    assert (workspace / "f").read_bytes() == b"one o \xff two\n"


CONTENT = "first line\nsecond needle line\n" * 3


@pytest.mark.parametrize(
    "data",
    [
        CONTENT.encode(),
        b"\xef\xbb\xbf" + CONTENT.encode(),
        CONTENT.encode("utf-16-le"),
        CONTENT.encode("utf-16-be"),
        b"\xff\xfe" + CONTENT.encode("utf-16-le"),
        b"\xfe\xff" + CONTENT.encode("utf-16-be"),
    ],
)
async def test_read_search_and_edit_agree_on_what_a_file_is(workspace: Path, data: bytes) -> None:
    (workspace / "f").write_bytes(data)
    files = Files(workspace)
    assert (await files("read_file", path="f")).output == CONTENT
    assert (await files("search_files_content", path=".", query="needle")).output.startswith(
        "f:2: second needle line"
    )
    assert (
        "more than once"
        in (
            await files("edit_file", path="f", edits=[{"oldText": "first line\nsecond", "newText": "x"}])
        ).output
    )


async def test_what_is_no_text_is_an_error_and_not_the_end(workspace: Path) -> None:
    (workspace / "binary").write_bytes(b"\x7fELF\x00\x01\x02\xff\xfe")
    (workspace / "nul").write_bytes(b"text\0text and more text")
    (workspace / "odd16").write_bytes(b"\xff\xfea")
    (workspace / "dir").mkdir()
    os.mkfifo(workspace / "fifo")
    with (workspace / "sparse").open("wb") as file:
        file.truncate(10_000_000_000)
    files = Files(workspace)
    for name, problem in {
        "binary": "binary file",
        "nul": "binary file",
        "odd16": "neither text nor valid",
        "dir": "is a directory",
        "fifo": "not a regular file",
        "sparse": "more than the limit",
        "gone": "no such file",
        "binary/x": "not a directory",
    }.items():
        result = await files("read_file", path=name)
        assert result.is_error
        assert problem in result.output, name
    assert (await files("write_file", path="fifo", content="x")).is_error
    assert (await files("write_file", path="dir", content="x")).is_error
    assert "4 files were not searched" in (await files("search_files_content", path=".", query="zzz")).output


async def test_part_of_a_file_by_lines(workspace: Path) -> None:
    (workspace / "f").write_text("1\n2\n3\n4\n")
    files = Files(workspace)
    result = await files("read_file", path="f", line=2, limit=2)
    assert (result.output, result.meta) == ("2\n3\n", {"line": 2, "total_lines": 4})
    assert (await files("read_file", path="f", line=4)).output == "4\n"
    assert "only 4 lines" in (await files("read_file", path="f", line=5)).output
    assert "count from 1" in (await files("read_file", path="f", line=0)).output


async def test_several_files_do_not_stop_at_a_bad_one(workspace: Path) -> None:
    (workspace / "a").write_text("A")
    files = Files(workspace)
    result = await files("read_multiple_files", paths=["a", "none"])
    assert result.output.startswith("=== a ===\nA\n\n=== none ===\nError: none: no such file")
    decoded = msgspec.json.decode((await files("read_multiple_files", paths=["a"], json=True)).output)
    assert decoded == [{"path": "a", "content": "A"}]


async def test_image_is_shown_not_decoded(workspace: Path) -> None:
    (workspace / "p.png").write_bytes(b"\x89PNG\0")
    result = await Files(workspace)("read_file", path="p.png")
    assert (result.media[0].mime_type, result.media[0].kind) == ("image/png", "image")


async def test_write_makes_directories_keeps_the_mode_and_leaves_no_temporary_file(workspace: Path) -> None:
    files = Files(workspace)
    await files("write_file", path="a/b/run.sh", content="1")
    (workspace / "a/b/run.sh").chmod(0o751)
    await files("write_file", path="a/b/run.sh", content="2")
    await files("edit_file", path="a/b/run.sh", edits=[{"oldText": "2", "newText": "3"}])
    assert (workspace / "a/b/run.sh").read_text() == "3"
    assert stat.S_IMODE((workspace / "a/b/run.sh").stat().st_mode) == 0o751
    assert [path.name for path in (workspace / "a/b").iterdir()] == ["run.sh"]


async def test_failed_write_leaves_the_old_content_and_no_temporary_file(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = await Files(workspace)("write_file", path="f", content="new")
    assert "no space left" in result.output
    assert (workspace / "f").read_text() == "old"
    assert [path.name for path in workspace.iterdir()] == ["f"]


async def test_listing_and_tree(workspace: Path) -> None:
    for name in (".git/config", "src/b.py", "src/sub/c.py", "build/x.o", "a.log", "keep.log", "sub/only.tmp"):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("needle")
    (workspace / ".gitignore").write_text("*.log\n!keep.log\n/build/\n[bad\n")
    (workspace / "sub" / ".gitignore").write_text("*.tmp\n")
    (workspace / os.fsdecode(b"\xff\xfe")).mkdir()
    files = Files(workspace)
    assert (
        await files("list_directory", path=".")
    ).output == "DIR src\nDIR sub\nFILE .gitignore\nFILE keep.log"
    assert (await files("directory_tree", path=".")).output == (
        "./\n  src/\n    sub/\n      c.py\n    b.py\n  sub/\n    .gitignore\n  .gitignore\n  keep.log"
    )
    assert (await files("list_directory", path="sub")).output == "FILE .gitignore"
    every = Files(workspace, ignore_vcs=False)
    assert "DIR .git" in (await every("list_directory", path=".")).output
    found = await every("search_files_content", path=".", query="needle", excludePatterns=["src", "*.log"])
    assert {line.partition(":")[0] for line in found.output.splitlines()} == {
        ".git/config",
        "build/x.o",
        "sub/only.tmp",
    }
    assert (await files("directory_tree", path="none")).is_error


async def test_search_by_text_and_by_expression(workspace: Path) -> None:
    (workspace / "f").write_text("foo(1)\nfoo[2]\n" + "a" * 5000 + "\n")
    files = Files(workspace)
    assert (await files("search_files_content", path="f", query="foo(")).output == "f:1: foo(1)"
    assert (await files("search_files_content", path=".", query=r"foo.\d", is_regex=True)).output.count(
        "\n"
    ) == 1
    assert (
        "not a valid regular expression"
        in (await files("search_files_content", path=".", query="(", is_regex=True)).output
    )
    assert (
        "No matches" in (await files("search_files_content", path=".", query="(a+)+$b", is_regex=True)).output
    )
    assert "query is empty" in (await files("search_files_content", path=".", query="")).output
    assert (await files("search_files_content", path="none", query="x")).is_error
    (workspace / "many").write_text("hit\n" * 1000)
    assert "cut off after 300 matches" in (await files("search_files_content", path=".", query="hit")).output


async def test_directories_are_made_and_removed(workspace: Path) -> None:
    files = Files(workspace)
    await files("create_directory", paths=["a/b/c", "d"])
    (workspace / "a/b/link").symlink_to("../../../agent-two")
    (workspace / "a/b/c/f").write_text("x")
    assert not (await files("create_directory", paths=["a"])).is_error
    assert (await files("remove_directory", paths=["a", "d"])).output == "Removed: a, d"
    assert not list(workspace.iterdir())
    assert (workspace.parent / "agent-two" / "secret.txt").exists()
    (workspace / "f").write_text("x")
    assert (await files("remove_directory", paths=["f"])).is_error
    assert (await files("create_directory", paths=["f/x"])).is_error
    for path in (".", "..", str(workspace)):
        assert (await files("remove_directory", paths=[path])).is_error
    assert (workspace / "f").exists()


async def test_post_edit_commands_run_for_matching_files(workspace: Path) -> None:
    files = Files(
        workspace,
        post_edit=[
            {"path": "*.py", "cmd": 'echo formatted >> "$path"'},
            {"path": "*.bad", "cmd": "echo broken; exit 7"},
        ],
    )
    assert (await files("write_file", path="a b.py", content="x\n")).output.endswith("(2 characters).")
    assert (workspace / "a b.py").read_text() == "x\nformatted\n"
    await files("edit_file", path="a b.py", edits=[{"oldText": "x", "newText": "y"}])
    assert (workspace / "a b.py").read_text() == "y\nformatted\nformatted\n"
    assert "failed (7):\nbroken" in (await files("write_file", path="c.bad", content="x")).output
    await files("write_file", path="d.txt", content="x")
    assert (workspace / "d.txt").read_text() == "x"


def test_descriptors_are_closed_on_every_path(workspace: Path) -> None:
    space = Workspace(workspace)
    count = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("none", "none/x", "."):
        place = space.place(name)
        with pytest.raises(ToolError):
            read_bytes(place, name, 10)
    write_bytes(Place(space.roots[0], ("f",)), "f", b"x" * 11)
    with pytest.raises(ToolError):
        read_bytes(space.place("f"), "f", 10)
    assert len(list(Path("/proc/self/fd").iterdir())) == count
