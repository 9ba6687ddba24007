"""``greenroom serve chat`` as a process, driven by OpenAI's own client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from actors.testing.stub_server import Handler, Reply, StubRequest, openai_call, openai_text, raw
from gateway.cli.main import main
from tests.gateway.cli.conftest import ServeModel
from tests.gateway.cli.server import Server, serving

TEAM = """\
agents:
  root:
    model: openai/gpt-4o-mini
    instruction: Lead.
    toolsets: [{type: shell}]
  helper:
    model: openai/gpt-4o-mini
    instruction: Help.
"""


def client(server: Server, key: str = "none", **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://{server.address}/v1", api_key=key, max_retries=0, **options)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def streamed(server: Server, **options: Any) -> list[Any]:
    """Return the chunks of a streamed answer, by the blocking client in a thread."""

    def run() -> list[Any]:
        with openai.OpenAI(base_url=f"http://{server.address}/v1", api_key="none", max_retries=0) as api:
            messages: Any = [user("hi")]
            return list(api.chat.completions.create(model="root", messages=messages, stream=True, **options))

    return await trio.to_thread.run_sync(run)


async def ask(
    to: openai.AsyncOpenAI, *messages: Mapping[str, str], model: str = "root", **options: Any
) -> Any:
    return await to.chat.completions.create(model=model, messages=list(messages), **options)  # type: ignore[call-overload]


def echo(seen: list[list[dict[str, Any]]]) -> Handler:
    """Return a model that answers with the number of its call, and keeps what it was sent."""

    def handle(request: StubRequest) -> Reply:
        seen.append(request.body["messages"])
        return openai_text(f"answer {len(seen)}")

    return handle


async def test_agents_are_models(tmp_path: Path) -> None:
    async with serving(tmp_path, kind="chat", agents=TEAM) as server, client(server) as api:
        assert [model.id async for model in api.models.list()] == ["root", "helper"]
        assert (await api.models.retrieve("helper")).id == "helper"
        with pytest.raises(openai.NotFoundError) as missing:
            await ask(api, user("hi"), model="nobody")
        assert missing.value.code == "model_not_found"


async def test_an_answer_comes_whole(serve_model: ServeModel, tmp_path: Path) -> None:
    seen: list[list[dict[str, Any]]] = []
    await serve_model(handler=echo(seen))
    async with serving(tmp_path, kind="chat", agents=TEAM) as server, client(server) as api:
        messages = [
            {"role": "system", "content": "Be brief."},
            user("one"),
            {"role": "assistant", "content": "1"},
        ]
        answer = await ask(api, *messages, user("two"))
    assert answer.choices[0].message.content == "answer 1"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "root"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    said = [(message["role"], message["content"]) for message in seen[0]]
    assert said[-4:] == [("user", "Be brief."), ("user", "one"), ("assistant", "1"), ("user", "two")]


async def test_an_answer_is_streamed_with_its_usage_at_the_end(
    serve_model: ServeModel, tmp_path: Path
) -> None:
    await serve_model(openai_text("Hello there friend", chunks=3))
    async with serving(tmp_path, kind="chat", agents=TEAM) as server:
        chunks = await streamed(server, stream_options={"include_usage": True})
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "Hello there friend"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert not chunks[-1].choices
    assert chunks[-1].usage.total_tokens > 0


@pytest.mark.parametrize("flags", [(), ("--yolo",)], ids=["refused", "autonomous"])
async def test_tools_run_on_the_server_and_only_as_far_as_they_may(
    serve_model: ServeModel, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    mark = tmp_path / "mark"
    model = await serve_model(openai_call("shell", json.dumps({"cmd": f"touch {mark}"})), openai_text("Done"))
    async with serving(tmp_path, *flags, kind="chat", agents=TEAM) as server, client(server) as api:
        answer = await ask(api, user("touch it"))
    assert answer.choices[0].message.content == "Done"
    assert answer.choices[0].message.tool_calls is None
    assert mark.exists() is bool(flags)
    assert ("nobody can be asked" in str(model.requests[1].body)) is not flags


async def test_a_conversation_with_an_id_is_remembered_and_a_failed_turn_is_not(
    serve_model: ServeModel, tmp_path: Path
) -> None:
    seen: list[list[dict[str, Any]]] = []
    answer = echo(seen)

    def handle(request: StubRequest) -> Reply:
        if "fail" in request.body["messages"][-1]["content"]:
            return raw(b'{"error": {"message": "no such thing"}}', status=400)
        return answer(request)

    await serve_model(handler=handle)
    flags = ("--conversations-max", "2")
    async with (
        serving(tmp_path, *flags, kind="chat", agents=TEAM) as server,
        client(server, default_headers={"X-Conversation-Id": "c1"}) as api,
    ):
        await ask(api, user("one"))
        with pytest.raises(openai.APIStatusError) as failed:
            await ask(api, user("fail"))
        assert failed.value.status_code == 502
        await ask(api, user("two"))
        other = api.with_options(default_headers={"X-Conversation-Id": "c2"})
        await ask(other, user("three"))
    said = [[m["content"] for m in messages if m["role"] != "system"] for messages in seen]
    assert said == [["one"], ["one", "answer 1", "two"], ["three"]]


async def test_a_key_from_a_variable_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", "sesame")
    async with serving(tmp_path, "--api-key-env", "CHAT_KEY", kind="chat", agents=TEAM) as server:
        async with client(server, "wrong") as api:
            with pytest.raises(openai.AuthenticationError):
                await api.models.list()
        async with client(server, "sesame") as api:
            assert [model.id async for model in api.models.list()] == ["root", "helper"]


async def test_a_turn_that_takes_too_long_is_ended(serve_model: ServeModel, tmp_path: Path) -> None:
    await serve_model(handler=lambda _: Reply(hang=True))
    async with (
        serving(tmp_path, "--request-timeout", "200ms", kind="chat", agents=TEAM) as server,
        client(server) as api,
    ):
        with pytest.raises(openai.APIStatusError) as late:
            await ask(api, user("hi"))
        assert late.value.status_code == 504
        with pytest.raises(openai.APIError, match="did not answer in time"):
            await streamed(server)


async def test_pages_of_a_named_origin_may_call_and_others_may_not(tmp_path: Path) -> None:
    origin = "https://ui.example"
    async with serving(tmp_path, "--cors-origin", origin, kind="chat", agents=TEAM) as server:

        def send(method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> Any:
            request = urllib.request.Request(f"http://{server.address}{path}", body, headers, method=method)
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, dict(answer.headers)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, dict(error.headers)

        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        status, headers = await trio.to_thread.run_sync(send, "OPTIONS", "/v1/chat/completions", asked)
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, origin)
        status, headers = await trio.to_thread.run_sync(send, "GET", "/v1/models", {"Origin": origin})
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, origin)
        foreign = {"Origin": "https://evil.example", "Content-Type": "application/json"}
        status, headers = await trio.to_thread.run_sync(send, "POST", "/v1/chat/completions", foreign, b"{}")
        assert status == 403
        assert "Access-Control-Allow-Origin" not in headers


async def test_the_api_server_answers_chat_completions_too(serve_model: ServeModel, tmp_path: Path) -> None:
    await serve_model(openai_text("Hello"))
    async with serving(tmp_path, agents=TEAM) as server, client(server) as api:
        answer = await ask(api, user("hi"))
        assert answer.choices[0].message.content == "Hello"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"model": "root", "messages": []}, "last message must be the user's"),
        (
            {"model": "root", "messages": [{"role": "assistant", "content": "x"}]},
            "last message must be the user's",
        ),
        ({"model": "root", "messages": [{"role": "robot", "content": "x"}]}, "robot"),
        ({"model": "root", "n": 2, "messages": [{"role": "user", "content": "x"}]}, "one answer"),
        ({"model": "root", "messages": [{"role": "user", "content": [{"type": "video"}]}]}, "video"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_openais_words(
    tmp_path: Path, body: dict[str, Any], said: str
) -> None:
    async with serving(tmp_path, kind="chat", agents=TEAM) as server:
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            await server.post("/v1/chat/completions", body)
        with refused.value as answer:
            error = json.loads(answer.read())["error"]
    assert said in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--api-key", "x", "--api-key-env", "Y"], "contradict"),
        (["--api-key-env", "GREENROOM_NOT_SET"], "GREENROOM_NOT_SET"),
        (["--agent", "nobody"], "there is no agent 'nobody'"),
        (["--request-timeout", "5"], "--request-timeout"),
        (["--pull-interval", "1"], "not local files"),
    ],
)
def test_a_start_that_cannot_work_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(TEAM)
    assert (
        main(["serve", "chat", str(file), "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", *flags])
        != 0
    )
    printed = capsys.readouterr()
    assert said in printed.err
    assert "Listening" not in printed.out
