"""Methods beside the loop: mode, name, remarks, plan, workspace, models, and what is only accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.copilot.kit import Refused, opened


async def test_the_mode_is_kept_and_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        assert await client.call("session.mode.get", sessionId=session) == "interactive"
        await client.call("session.mode.set", sessionId=session, mode="plan")
        assert await client.event("session.mode_changed") == {
            "previousMode": "interactive",
            "newMode": "plan",
        }
        assert await client.call("session.mode.get", sessionId=session) == "plan"
        with pytest.raises(Refused, match="mode"):
            await client.call("session.mode.set", sessionId=session, mode="wild")


async def test_a_name_is_set_and_a_blank_one_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        await client.call("session.name.set", sessionId=session, name="Mine")
        assert await client.call("session.name.get", sessionId=session) == {"name": "Mine"}
        assert await client.event("session.title_changed") == {"title": "Mine"}
        with pytest.raises(Refused, match="blank"):
            await client.call("session.name.set", sessionId=session, name="  ")


async def test_a_remark_is_stored_unless_it_is_ephemeral(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        await client.call("session.log", sessionId=session, message="kept", level="warning")
        await client.call("session.log", sessionId=session, message="gone", ephemeral=True)
        assert (await client.event("session.warning"))["message"] == "kept"
        assert (await client.event("session.info"))["message"] == "gone"
        assert [line["type"] for line in await world.lines(session)] == ["session.start", "session.warning"]


async def test_a_plan_is_written_read_and_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        assert (await client.call("session.plan.read", sessionId=session))["exists"] is False
        for text in ("one", "two"):
            await client.call("session.plan.update", sessionId=session, content=text)
        assert (await client.call("session.plan.read", sessionId=session))["content"] == "two"
        await client.call("session.plan.delete", sessionId=session)
        await client.call("session.plan.delete", sessionId=session)
        await client.event("session.plan_changed", 3)
        assert [e["operation"] for e in client.of("session.plan_changed")] == ["create", "update", "delete"]


async def test_workspace_files_stay_inside_the_workspace(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        await client.call("session.workspaces.createFile", sessionId=session, path="a/b.txt", content="x")
        assert await client.call("session.workspaces.listFiles", sessionId=session) == {"files": ["a/b.txt"]}
        read = await client.call("session.workspaces.readFile", sessionId=session, path="a/b.txt")
        assert read == {"content": "x"}
        for path in ("../events.jsonl", "/etc/passwd", ".", "a/../../x"):
            with pytest.raises(Refused, match="inside"):
                await client.call("session.workspaces.readFile", sessionId=session, path=path)
        with pytest.raises(Refused, match="no file"):
            await client.call("session.workspaces.readFile", sessionId=session, path="none")


async def test_models_are_listed_with_what_the_sdks_require(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        models = (await (await world.client()).call("models.list"))["models"]
        assert models
        assert all({"id", "name", "capabilities"} <= set(model) for model in models)
