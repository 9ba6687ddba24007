"""``greenroom run`` with a real runtime and a stub model: one answer, chats, approvals, sessions that go on."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import click
import msgspec
import pytest
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from actors import open_runtime
from actors.errors import NotFound
from actors.testing.stub_server import Reply, assistant, openai_call, openai_text, raw
from gateway.cli.conversation import Conversation
from gateway.cli.display import PlainDisplay
from gateway.cli.enter import settings_for
from gateway.cli.person import TerminalPerson
from gateway.cli.run import RunOptions, chat, split, talk
from tests.gateway.cli.conftest import ServeModel

COMMAND = '{"cmd": "echo from-the-tool"}'
CALL = openai_call("shell", COMMAND)


def options(
    tmp_path: Path, *, session: str | None = None, yolo: bool = False, as_json: bool = False
) -> RunOptions:
    return RunOptions(
        words=(),
        agent=None,
        model=None,
        yolo=yolo,
        session=session,
        as_json=as_json,
        working_dir=tmp_path,
        session_db=str(tmp_path / "session.db"),
        data_dir=tmp_path / "data",
    )


def answers(*texts: str) -> list[Reply]:
    """Return a script for one untitled run; the title's call may come at any time, and gets one of these too."""
    return [openai_text(text, chunks=3) for text in texts]


async def test_the_answer_is_printed_and_the_status_is_zero(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await serve_model(*answers("Hello *world*", "Hello *world*"))
    assert await talk(options(tmp_path), agent_file, "hi") == 0
    assert capsys.readouterr().out == "Hello *world*\n"


async def test_json_prints_one_event_a_line(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await serve_model(*answers("Hello", "Hello"))
    assert await talk(options(tmp_path, as_json=True), agent_file, "hi") == 0
    events = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["type"] == "stream_stopped"
    assert "".join(e["content"] for e in events if e["type"] == "agent_choice") == "Hello"


async def test_a_model_that_fails_is_exit_status_one_and_said_once(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = Reply([b'{"error": {"message": "no such model"}}'], 404, "application/json")
    await serve_model(refusal, refusal)
    assert await talk(options(tmp_path), agent_file, "hi") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("error: ") == 1
    assert "no such model" in printed.err


async def test_without_a_person_a_tool_that_needs_approval_is_refused(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path
) -> None:
    server = await serve_model(handler=assistant("understood", tool="shell", arguments=COMMAND))
    await talk(options(tmp_path), agent_file, "run it")
    told = [
        m["content"] for request in server.requests for m in request.body["messages"] if m["role"] == "tool"
    ]
    assert any("--yolo" in str(each) for each in told)
    assert not any("from-the-tool" in str(each) for each in told)


async def test_yolo_runs_tools_unasked(serve_model: ServeModel, agent_file: Path, tmp_path: Path) -> None:
    server = await serve_model(handler=assistant("done", tool="shell", arguments=COMMAND))
    assert await talk(options(tmp_path, yolo=True), agent_file, "run it") == 0
    results = [
        m["content"] for request in server.requests for m in request.body["messages"] if m["role"] == "tool"
    ]
    assert any("from-the-tool" in str(result) for result in results)


async def test_a_session_goes_on_where_it_was(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path
) -> None:
    server = await serve_model(*answers("one", "one", "two", "two"))
    assert await talk(options(tmp_path, session="mine"), agent_file, "first words") == 0
    assert await talk(options(tmp_path, session="-1"), agent_file, "second words") == 0
    last = [
        message["content"] for message in server.requests[-1].body["messages"] if message["role"] == "user"
    ]
    assert last == ["first words", "second words"]
    with pytest.raises(NotFound):
        await talk(options(tmp_path, session="-2"), agent_file, "third")


class Output(io.StringIO):
    """Tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = trio.Event()

    def write(self, text: str, /) -> int:
        self.written.set()
        return super().write(text)


class Chatting:
    """A chat whose keyboard is a pipe."""

    def __init__(self, tmp_path: Path, agent: Path) -> None:
        self.out, self.notes = Output(), io.StringIO()
        self._settings = settings_for(data_dir=tmp_path / "data", session_db=str(tmp_path / "s.db"))
        self._agent = agent

    async def type(self, keys: str) -> None:
        """Chat until the person leaves."""
        with create_pipe_input() as keyboard:
            person = TerminalPerson(
                Console(file=self.notes), PromptSession(input=keyboard, output=DummyOutput())
            )
            async with open_runtime(self._settings, agents=self._agent) as runtime:
                session = await runtime.create_session(title="chat")
                display = PlainDisplay(self.out, self.notes)
                keyboard.send_text(keys)
                await chat(
                    Conversation(session, display, person, source=await runtime.agents.only("")), person
                )


async def test_a_chat_keeps_its_history_and_ends_with_ctrl_d(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path
) -> None:
    server = await serve_model(*answers("first answer", "second answer"))
    chatting = Chatting(tmp_path, agent_file)
    await chatting.type("one\r\rtwo\r\x04")
    assert chatting.out.getvalue() == "first answer\nsecond answer\n"
    assert [m["role"] for m in server.requests[-1].body["messages"]][-3:] == ["user", "assistant", "user"]


async def test_a_person_at_the_terminal_approves_a_call(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path
) -> None:
    server = await serve_model(CALL, openai_text("done"))
    chatting = Chatting(tmp_path, agent_file)
    await chatting.type("run it\ry\r\x04")
    assert "from-the-tool" in str(server.requests[-1].body["messages"][-1])
    assert chatting.out.getvalue() == "done\n"


async def test_ctrl_c_cancels_the_answer_and_not_the_program(
    serve_model: ServeModel, agent_file: Path, tmp_path: Path
) -> None:
    stuck = raw(b'data: {"choices":[{"index":0,"delta":{"content":"I will never"}}]}\n\n', hang=True)
    await serve_model(stuck, openai_text("back again"))
    chatting = Chatting(tmp_path, agent_file)

    async def interrupt() -> None:
        await chatting.out.written.wait()
        os.kill(os.getpid(), signal.SIGINT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(interrupt)
        await chatting.type("hang\ragain\r\x04")
    assert chatting.out.getvalue() == "I will never\nback again\n"


@pytest.mark.parametrize(
    ("words", "file", "message"),
    [((), None, ""), (("say", "hello"), None, "say hello"), (("hello.txt",), None, "hello.txt")],
)
def test_words_are_a_message_unless_the_first_is_a_file(
    words: tuple[str, ...], file: Path | None, message: str
) -> None:
    assert split(words) == (file, message)


def test_a_first_word_that_is_a_file_is_the_agent(agent_file: Path) -> None:
    assert split((str(agent_file), "what", "now")) == (agent_file, "what now")


def test_a_message_that_mentions_a_file_is_a_message() -> None:
    assert split(("explain a.yaml",)) == (None, "explain a.yaml")


def test_an_agent_file_that_is_not_there_is_said_and_not_sent_to_a_model() -> None:
    with pytest.raises(click.ClickException, match=r"no such agent file: nope\.yaml"):
        split(("nope.yaml", "hi"))
