"""Every endpoint of the squads API used for what it is for, over HTTP against a real runtime."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.models.provider import ModelRequest
from actors.testing.model import Answer, fail, hang, say, until
from tests.gateway.kit import PATIENCE
from tests.gateway.squad_kit import BASE, Api, agent_body, failed, open_api, squad_body
from tests.squad.kit import Team, drain

CHAIN: tuple[tuple[str, str, list[str]], ...] = (("first", "ann", []), ("second", "bob", ["t1"]))


class Held:
    """A team whose first task waits until it is let go."""

    def __init__(self) -> None:
        self.release = trio.Event()
        self.team = Team(*CHAIN, work=self._work)

    def _work(self, _: ModelRequest, title: str) -> Answer:
        return until(self.release) + say("done") if title == "first" else say(f"result of {title}")


def refuse_first(_: ModelRequest, title: str) -> Answer:
    return fail(ValueError("broken")) if title == "first" else say("fine")


async def planned(api: Api, squad_id: str) -> str:
    """Submit a request, wait for its plan, and return the execution's id."""
    made = await api.post(f"/squads/{squad_id}/execute?wait=true", {"request": "write it"})
    assert made["status"] == {"type": "awaiting_approval"}
    assert made["plannerStarted"] is True
    found: str = made["executionId"]
    return found


async def running(api: Api, squad_id: str) -> str:
    execution_id = await planned(api, squad_id)
    approved = await api.post(f"/squads/{squad_id}/executions/{execution_id}/approve")
    assert approved["executorStarted"] is True
    return execution_id


def ids(execution: Any) -> dict[str, str]:
    return {task["title"]: task["id"] for task in execution["plan"]["tasks"]}


async def test_a_squad_lives_from_creation_to_deletion(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        answer = await api.ask("POST", "/squads", squad_body(tmp_path / "ws"))
        assert answer.status == 201
        squad = answer.json
        path = f"/squads/{squad['id']}"
        assert await api.get(path) == squad
        [row] = await api.get("/squads")
        assert (row["id"], row["agentCount"], row["status"]) == (squad["id"], 3, {"type": "idle"})
        assert (await api.get(path + "/readiness"))["available"] is True
        changed = (await api.ask("PUT", path, {"name": "Others", "plannerAgentId": None})).json
        assert (changed["name"], changed["plannerAgentId"]) == ("Others", None)
        taken = await api.ask("POST", "/squads", squad_body(tmp_path / "ws"))
        failed(taken, 409, "SQUAD_WORKSPACE_IN_USE")
        failed(await api.ask("POST", "/squads", squad_body(Path("relative"))), 400, "BAD_REQUEST")
        assert (await api.ask("DELETE", path)).json == {"success": True}
        failed(await api.ask("GET", path), 404, "NOT_FOUND")
        assert await api.get("/squads") == []


async def test_a_workspace_is_checked_laid_out_restored_and_cleaned(tmp_path: Path) -> None:
    workspace = tmp_path / "Testers"
    async with open_api(tmp_path) as api:
        verdict = await api.post("/squads/workspace/validate", {"path": str(workspace)})
        assert verdict["valid"] is True
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/workspace"
        assert (await api.get(path + "/status"))["initialized"] is False
        status = await api.post(path + "/init", {"path": str(workspace)})
        assert (status["initialized"], status["missing"]) == (True, [])
        assert (await api.get(path + "/status")) == status
        verdict = await api.post("/squads/workspace/validate", {"path": str(workspace)})
        assert (verdict["valid"], verdict["inUseBySquadId"]) == (False, squad_id)
        preview = await api.post("/squads/restore", {"workspacePath": str(workspace)})
        assert preview["squad"]["name"] == "Testers"
        assert len(await api.get("/squads")) == 1
        failed(await api.ask("POST", path + "/init", {"path": f"{tmp_path}/../up"}), 400, "BAD_REQUEST")
        cleaned = await api.post(path + "/clean", {"archive": True})
        assert Path(cleaned["archivePath"]).is_file()
        assert not workspace.exists()
        failed(await api.ask("POST", path + "/clean", {}), 409, "CONFLICT")
        failed(await api.ask("POST", "/squads/restore", {"workspacePath": str(workspace)}), 404, "NOT_FOUND")


async def test_agents_are_added_changed_and_removed(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/agents"
        assert (await api.ask("POST", path, agent_body("eve", "writer"))).status == 201
        failed(await api.ask("POST", path, agent_body("eve")), 409, "CONFLICT")
        overrides = {"maxIterations": 3}
        changed = (await api.ask("PATCH", path + "/a-eve", {"settingsOverrides": overrides})).json
        assert changed["settingsOverrides"]["maxIterations"] == 3
        changed = (await api.ask("PATCH", path + "/a-eve", {"settingsOverrides": None})).json
        assert changed["settingsOverrides"] is None
        assert await api.get(path + "/a-eve") == changed
        bulk = {"agentIds": ["a-ann", "a-eve"], "modelRef": "scripted/n"}
        assert await api.post(path + "/bulk-update-model", bulk) == {"updatedCount": 2}
        assert (await api.ask("PUT", path + "/bulk-update-model", bulk)).json == {"updatedCount": 2}
        models = {each["id"]: each["modelPreferences"]["preferredModelId"] for each in await api.get(path)}
        assert models == {f"a-{name}": "scripted/m" for name in ("pia", "bob")} | {
            f"a-{name}": "scripted/n" for name in ("ann", "eve")
        }
        assert (await api.ask("DELETE", path + "/a-eve")).json == {"success": True}
        failed(await api.ask("DELETE", path + "/a-pia"), 409, "SQUAD_AGENT_IS_PLANNER")


async def test_a_task_goes_over_the_board(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/tasks"
        answer = await api.ask("POST", path, {"title": "One", "description": "d", "assignedTo": "a-ann"})
        assert answer.status == 201
        one = answer.json["id"]
        two = (await api.post(path, {"title": "Two", "description": "d", "dependsOn": [one]}))["id"]
        assert (await api.get(path + "/graph"))["waves"] == [[one], [two]]
        assert [task["id"] for task in await api.get(path + "?assignedTo=a-ann")] == [one]
        changed = (await api.ask("PATCH", f"{path}/{two}", {"title": "Zwei"})).json
        assert await api.get(f"{path}/{two}") == changed
        for state in ("in_progress", "failed"):
            moved = (await api.ask("PUT", f"{path}/{one}/status", {"status": state})).json
            assert moved["status"] == state
        assert (await api.post(f"{path}/{one}/retry"))["retryCount"] == 1
        await api.ask("PUT", f"{path}/{one}/status", {"status": "in_progress"})
        failed(await api.ask("DELETE", f"{path}/{one}"), 409, "SQUAD_TASK_ACTIVE")
        failed(await api.ask("PATCH", f"{path}/{one}", {"title": "x"}), 409, "SQUAD_TASK_ACTIVE")
        assert (await api.ask("DELETE", f"{path}/{one}?force=true")).json == {"success": True}
        assert (await api.get(f"{path}/{two}"))["dependsOn"] == []
        await api.ask("PUT", f"{path}/{two}/status", {"status": "done"})
        failed(await api.ask("PATCH", f"{path}/{two}", {"title": "x"}), 409, "SQUAD_TASK_TERMINAL")
        failed(await api.ask("POST", path, {"title": "x", "description": "d", "dependsOn": ["no"]}), 400)
        [summary] = await api.get("/squads/tasks/summary")
        assert (summary["squadId"], summary["total"], summary["byStatus"]["done"]) == (squad_id, 1, 1)


async def test_a_memory_is_written_read_and_searched(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/memory"
        failed(await api.ask("POST", path + "/init"), 409, "CONFLICT")
        failed(await api.ask("GET", path + "/a-ann"), 404, "NOT_FOUND")
        workspace = {"path": str(tmp_path / "Testers")}
        await api.post(f"/squads/{squad_id}/workspace/init", workspace)
        assert "a-ann" in (await api.post(path + "/init"))["initialized"]
        for content in ("likes Tea", "likes rain"):
            await api.post(path + "/a-ann", {"section": "Facts", "content": content})
        assert "Facts" in await api.get(path + "/a-ann/sections")
        text = (await api.get(path + "/a-ann"))["content"]
        assert "likes Tea" in text
        assert "likes rain" in text
        for query in ("query=tea", "q=tea", "query=Tea&caseSensitive=true&agentId=a-ann&section=Facts"):
            [hit] = await api.get(f"{path}/search?{query}")
            assert (hit["agentId"], hit["section"], "likes Tea" in hit["content"]) == ("a-ann", "Facts", True)
        assert await api.get(path + "/search?query=tea&caseSensitive=true") == []
        failed(await api.ask("GET", path + "/search?query="), 400, "BAD_REQUEST")
        body = {"section": "Facts", "content": "only this", "overwrite": True}
        assert "likes" not in (await api.post(path + "/a-ann", body))["content"]


async def test_files_are_listed_read_and_searched(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/workspace"
        await api.post(path + "/init", {"path": str(tmp_path / "Testers")})
        (tmp_path / "Testers" / "artifacts" / "a.txt").write_text("one\ntwo\n")
        (tmp_path / "Testers" / "artifacts" / "b.bin").write_bytes(b"\0\1\2")
        (tmp_path / "Testers" / "out").symlink_to(tmp_path)
        assert "artifacts" in [each["name"] for each in await api.get(path + "/files")]
        names = [each["path"] for each in await api.get(path + "/files?path=artifacts")]
        assert names == ["artifacts/a.txt", "artifacts/b.bin"]
        content = await api.get(path + "/files/content?path=artifacts/a.txt")
        assert (content["content"], content["size"]) == ("one\ntwo\n", 8)
        assert await api.get(path + "/search?query=two") == [
            {"path": "artifacts/a.txt", "line": 2, "content": "two"}
        ]
        failed(await api.ask("GET", path + "/files/content?path=artifacts/b.bin"), 415)
        failed(await api.ask("GET", path + "/files/content?path=none"), 404, "NOT_FOUND")
        for bad in ("../x", "out", "/etc", "a%00b"):
            assert (await api.ask("GET", f"{path}/files?path={bad}")).status in (400, 403, 404)
            assert (await api.ask("GET", f"{path}/files/content?path={bad}")).status in (400, 403, 404)


async def test_a_request_is_planned_approved_and_run(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN)) as api:
        squad_id = await api.squad()
        execution_id = await planned(api, squad_id)
        path = f"/squads/{squad_id}/executions"
        waiting = await api.get(f"{path}/{execution_id}")
        assert (waiting["phase"], waiting["totalWaves"]) == ("awaiting_approval", 2)
        approved = await api.post(f"{path}/{execution_id}/approve")
        assert approved["executorStarted"] is True
        done = await api.finished(squad_id, execution_id)
        assert (done["phase"], done["result"]) == ("completed", "the whole answer")
        failed(
            await api.ask("POST", f"{path}/{execution_id}/approve"),
            409,
            "SQUAD_EXECUTION_NOT_AWAITING_APPROVAL",
        )
        [row] = await api.get(path + "?status=completed")
        assert (row["executionId"], row["request"]) == (execution_id, "write it")
        assert await api.get(path + "?status=failed") == []
        assert await api.get(path + "?limit=0") == []


async def test_a_plan_can_be_replaced_when_it_is_approved(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN)) as api:
        squad_id = await api.squad()
        execution_id = await planned(api, squad_id)
        path = f"/squads/{squad_id}/executions/{execution_id}"
        task = {"id": "my_task", "title": "t", "description": "d", "assignedTo": "a-ann"}
        for bad in ([task], [{**task, "id": "ok", "assignedTo": "nobody"}], "no", [{"id": 7}]):
            body = {"planOverride": {"tasks": bad}}
            failed(await api.ask("POST", path + "/approve", body), 400, "BAD_REQUEST")
        assert (await api.get(path))["phase"] == "awaiting_approval"
        body = {"planOverride": {"tasks": [{**task, "id": "mine"}]}}
        assert [each["id"] for each in (await api.post(path + "/approve", body))["plan"]["tasks"]] == ["mine"]
        assert (await api.finished(squad_id, execution_id))["phase"] == "completed"


async def test_a_plan_is_rejected_and_an_execution_cancelled(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN)) as api:
        squad_id = await api.squad()
        execution_id = await planned(api, squad_id)
        path = f"/squads/{squad_id}/executions/{execution_id}"
        failed(await api.ask("POST", path + "/reject", {"feedback": " "}), 400, "BAD_REQUEST")
        assert (await api.post(path + "/reject", {"feedback": "shorter"}))["phase"] == "planning"
        again = await api.finished(squad_id, execution_id, "awaiting_approval")
        assert again["planIterations"] == 2
        assert (await api.post(path + "/cancel"))["phase"] == "cancelled"
        failed(await api.ask("POST", path + "/cancel"), 409, "SQUAD_EXECUTION_NOT_RUNNING")
        rejected = await api.ask("POST", path + "/reject", {"feedback": "x"})
        failed(rejected, 409, "SQUAD_EXECUTION_NOT_AWAITING_APPROVAL")


async def test_a_run_is_paused_steered_and_resumed(tmp_path: Path) -> None:
    held = Held()
    async with open_api(tmp_path, held.team) as api:
        squad_id = await api.squad()
        waiting = await planned(api, squad_id)
        failed(
            await api.ask("POST", f"/squads/{squad_id}/executions/{waiting}/pause"),
            409,
            "SQUAD_EXECUTION_NOT_PAUSABLE",
        )
        execution_id = await running(api, squad_id)
        path = f"/squads/{squad_id}/executions/{execution_id}"
        second = ids(await api.get(path))["second"]
        assert (await api.post(path + "/pause"))["status"]["type"] == "paused"
        steered = await api.post(path + "/steer", {"message": "in verse"})
        assert steered["directives"][0]["message"] == "in verse"
        scope = {"type": "task", "taskId": second}
        await api.post(path + "/steer", {"message": "only you", "scope": scope})
        for bad in (
            {"message": "x", "taskId": second},
            {"message": " "},
            {"message": "x", "scope": {"type": "no"}},
        ):
            failed(await api.ask("POST", path + "/steer", bad), 400, "BAD_REQUEST")
        assert (await api.post(path + "/resume"))["phase"] == "executing"
        failed(await api.ask("POST", path + "/resume"), 409, "SQUAD_EXECUTION_NOT_RUNNING")
        held.release.set()
        assert (await api.finished(squad_id, execution_id))["phase"] == "completed"
        assert "in verse" in held.team.prompts["second"]
        assert "only you" in held.team.prompts["second"]
        steered_late = await api.ask("POST", path + "/steer", {"message": "x"})
        failed(steered_late, 409, "SQUAD_EXECUTION_NOT_STEERABLE")


async def test_a_task_of_a_run_is_skipped_and_retried(tmp_path: Path) -> None:
    held = Held()
    async with open_api(tmp_path, held.team) as api:
        squad_id = await api.squad()
        execution_id = await running(api, squad_id)
        path = f"/squads/{squad_id}/executions/{execution_id}/tasks"
        second = ids(await api.get(f"/squads/{squad_id}/executions/{execution_id}"))["second"]
        not_yet = await api.ask("POST", f"{path}/{second}/retry")
        failed(not_yet, 409, "SQUAD_EXECUTION_TASK_NOT_RETRIABLE")
        assert (await api.post(f"{path}/{second}/skip"))["skippedTaskIds"] == [second]
        again = await api.ask("POST", f"{path}/{second}/skip")
        failed(again, 409, "SQUAD_EXECUTION_TASK_NOT_SKIPPABLE")
        assert (await api.post(f"{path}/{second}/retry"))["skippedTaskIds"] == []
        held.release.set()
        done = await api.finished(squad_id, execution_id)
        assert done["taskCounts"]["completed"] == 2
        failed(await api.ask("POST", f"{path}/{second}/retry"), 409)


async def test_an_ended_run_leaves_history_log_events_and_report(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN)) as api:
        squad_id = await api.squad()
        execution_id = await running(api, squad_id)
        await api.finished(squad_id, execution_id)
        path = f"/squads/{squad_id}/history"
        record = await api.get(f"{path}/{execution_id}")
        assert await api.get(path) == [record]
        assert await api.get(path + "?offset=1") == []
        assert [task["output"] for task in record["tasks"]] == ["result of first", "result of second"]
        lines = await api.get(f"{path}/{execution_id}/logs")
        assert {"timestamp", "level", "message"} <= lines[0].keys()
        assert len(await api.get(f"{path}/{execution_id}/logs?limit=2")) == 2
        page = await api.get(f"{path}/{execution_id}/events")
        assert [each["seq"] for each in page["events"]] == list(range(1, page["lastSeq"] + 1))
        assert {each["executionId"] for each in page["events"]} == {execution_id}
        assert page["hasMore"] is False
        query = "?afterSeq=5&eventTypes=squad:task-completed,squad:execution-completed&limit=1"
        part = await api.get(f"{path}/{execution_id}/events{query}")
        assert (len(part["events"]), part["hasMore"]) == (1, True)
        assert part["events"][0]["seq"] > 5
        report = await api.post(f"{path}/{execution_id}/report")
        assert "the whole answer" in Path(report).read_text()
        analytics = await api.get(f"/squads/{squad_id}/analytics?period=day")
        assert (analytics["totalExecutions"], analytics["successRate"]) == (1, 1.0)


async def test_activity_is_empty_after_a_restart_until_it_is_loaded(tmp_path: Path) -> None:
    database = tmp_path / "greenroom.db"
    async with open_api(tmp_path, database=database) as api:
        squad_id = await api.squad()
        await api.post(f"/squads/{squad_id}/workspace/init", {"path": str(tmp_path / "Testers")})
        await api.post(f"/squads/{squad_id}/tasks", {"title": "One", "description": "d"})
        before = await api.get(f"/squads/{squad_id}/activity-log")
        names = [each["eventType"] for each in before["entries"]]
        assert names[-1] == "squad:task-created"
        part = await api.get(f"/squads/{squad_id}/activity-log?limit=1&offset=1")
        assert (part["entries"], part["total"]) == (before["entries"][1:2], before["total"])
        assert (await api.get(f"/squads/{squad_id}/activity-log/load"))["total"] == before["total"]
    async with open_api(tmp_path, database=database) as api:
        empty = await api.get(f"/squads/{squad_id}/activity-log")
        assert empty == {"entries": [], "total": 0}
        loaded = await api.get(f"/squads/{squad_id}/activity-log/load")
        assert [each["eventType"] for each in loaded["entries"]] == names


async def test_limits_are_set_and_refused_and_use_is_shown(tmp_path: Path) -> None:
    held = Held()
    async with open_api(tmp_path, held.team) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/budget"
        limits = await api.get(path)
        assert limits["maxConcurrentAgents"] == 3
        changed = {**limits, "maxTotalTokens": 200_000, "maxTotalCostUsd": 1.5}
        assert (await api.ask("PUT", path, changed)).json == changed
        assert await api.get(path) == changed
        for bad in ({"maxTokensPerTask": 90_000}, {"warningThresholdPercent": 101}, {"maxTotalTokens": 0}):
            failed(await api.ask("PUT", path, bad), 400, "BAD_REQUEST")
        execution_id = await running(api, squad_id)
        usage = await api.get(path + "/usage")
        assert (usage["tasksCreated"], usage["budget"]) == (2, changed)
        held.release.set()
        await api.finished(squad_id, execution_id)


async def test_an_emergency_stop_cancels_every_run_and_says_so_once(tmp_path: Path) -> None:
    team = Team(*CHAIN, work=lambda *_: hang())
    async with open_api(tmp_path, team) as api:
        squad_id = await api.squad()
        waiting, working = await planned(api, squad_id), await running(api, squad_id)
        with api.runtime.squads.follow(squad_id) as follower:
            stopped = await api.post(f"/squads/{squad_id}/emergency-stop")
            assert stopped["squadId"] == squad_id
            assert set(stopped["cancelledExecutionIds"]) == {waiting, working}
            again = await api.post(f"/squads/{squad_id}/emergency-stop", {})
            assert again["cancelledExecutionIds"] == []
            names = [event.name for event in drain(follower)]
        assert names.count("squad:execution-cancelled") == 2
        assert names.count("squad:emergency-stopped") == 2, "once for each request"
        for each in (waiting, working):
            assert (await api.get(f"/squads/{squad_id}/executions/{each}"))["phase"] == "cancelled"


async def test_templates_are_saved_exported_imported_and_deleted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        builtin = await api.get("/squad-templates")
        assert len(builtin) == 5
        path = f"/squad-templates/{builtin[0]['id']}"
        assert await api.get(path) == builtin[0]
        failed(await api.ask("DELETE", path), 403, "FORBIDDEN")
        squad_id = await api.squad()
        saved = await api.post(f"/squads/{squad_id}/save-as-template", {"name": "Mine"})
        exported = await api.get(f"/squad-templates/{saved['id']}/export")
        assert (await api.ask("DELETE", f"/squad-templates/{saved['id']}")).json == {"success": True}
        failed(await api.ask("GET", f"/squad-templates/{saved['id']}"), 404, "NOT_FOUND")
        answer = await api.ask("POST", "/squad-templates/import", {**exported, "isBuiltin": True})
        assert (answer.status, answer.json["isBuiltin"]) == (201, False)
        body = {"name": "Again", "workspacePath": str(tmp_path / "again"), "templateId": answer.json["id"]}
        made = await api.post("/squads", body)
        assert [agent["name"] for agent in made["agents"]] == ["pia", "ann", "bob"]
        failed(await api.ask("POST", "/squad-templates/import", {"name": "x"}), 400, "BAD_REQUEST")
        unknown = {**body, "workspacePath": str(tmp_path / "other"), "templateId": "none"}
        failed(await api.ask("POST", "/squads", unknown), 404, "NOT_FOUND")


async def test_a_template_is_installed_from_a_folder_that_was_added(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        saved = await api.post(f"/squads/{squad_id}/save-as-template", {"name": "Mine"})
        data = msgspec.json.encode(saved)
        (folder / "mine.json").write_bytes(data)
        row = {
            "path": "mine.json",
            "kind": "squad_template",
            "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }
        (folder / "index.json").write_bytes(msgspec.json.encode({"version": 1, "profiles": [row]}))
        failed(await api.ask("POST", "/squad-registry/install", {"path": "mine.json"}), 404, "NOT_FOUND")
        source = await api.post("/agent-registry/sources", {"name": "local", "url": str(folder)})
        assert await api.get("/agent-registry/sources") == [source]
        answer = await api.ask("POST", "/squad-registry/install", {"path": "mine.json"})
        assert (answer.status, answer.json["verification"]) == (201, "trusted")
        (folder / "mine.json").write_bytes(data + b" ")
        changed = await api.ask("POST", "/squad-registry/install", {"path": "mine.json"})
        failed(changed, 409, "SQUAD_TEMPLATE_UNVERIFIED")
        removed = await api.ask("DELETE", f"/agent-registry/sources/{source['id']}")
        assert removed.json == {"success": True}
        assert await api.get("/agent-registry/sources") == []


async def test_requests_that_cannot_start_a_run_are_refused(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN, work=lambda *_: hang())) as api:
        squad_id = await api.squad()
        path = f"/squads/{squad_id}/execute"
        failed(await api.ask("POST", path, {"request": " "}), 400, "BAD_REQUEST")
        empty = squad_body(tmp_path / "empty", "empty") | {"agents": [], "plannerAgentId": None}
        nobody = (await api.post("/squads", empty))["id"]
        failed(await api.ask("POST", f"/squads/{nobody}/execute", {"request": "x"}), 409, "CONFLICT")
        for _ in range(5):
            await running(api, squad_id)
        message = failed(await api.ask("POST", path, {"request": "x"}), 400, "BAD_REQUEST")
        assert "5 active executions" in message
        await api.post(f"/squads/{squad_id}/emergency-stop")


async def test_what_a_run_publishes_comes_in_order_over_sse_with_its_ids(tmp_path: Path) -> None:
    async with open_api(tmp_path, Team(*CHAIN)) as api, api.server.connect() as connection:
        squad_id = await api.squad()
        await connection.send(
            f"GET /api/v1/squads/{squad_id}/events HTTP/1.1\r\nHost: x.localhost\r\n\r\n".encode()
        )
        assert (await connection.head())[0] == 200
        execution_id = await running(api, squad_id)
        await api.finished(squad_id, execution_id)
        text = b""
        while b"squad:execution-completed\n" not in text or not text.endswith(b"\n\n"):
            text += await connection.chunk()
    names: list[str] = []
    for block in text.decode().removesuffix("\n\n").split("\n\n"):
        event, data = block.split("\n")
        payload = msgspec.json.decode(data.removeprefix("data: "))
        names.append(event.removeprefix("event: "))
        assert payload["squadId"] == squad_id
        assert payload.get("executionId", execution_id) == execution_id
        assert all("_" not in name for name in payload)
        if names[-1].startswith(("squad:execution", "squad:plan", "squad:task-")):
            assert payload["executionId"] == execution_id, names[-1]
    assert names[0] == "squad:planning-started"
    started = names.index("squad:execution-started")
    assert names.index("squad:plan-ready") < names.index("squad:plan-approved") < started + 1
    assert names.count("squad:task-wave-started") == 2


async def test_a_run_can_be_driven_by_its_socket_and_http_alone(tmp_path: Path) -> None:
    held = Held()
    async with open_api(tmp_path, held.team) as api:
        squad_id = await api.squad()
        async with api.server.websocket(f"{BASE}/squads/{squad_id}/ws") as websocket:

            async def until_event(name: str) -> Any:
                with trio.fail_after(PATIENCE):
                    while True:
                        message = msgspec.json.decode(await websocket.get_message())
                        if message["event"] == name:
                            return message["data"]

            made = await api.post(f"/squads/{squad_id}/execute", {"request": "write it"})
            path = f"/squads/{squad_id}/executions/{made['executionId']}"
            assert (await until_event("squad:plan-ready"))["executionId"] == made["executionId"]
            second = ids(await api.get(path))["second"]
            await api.post(path + "/approve")
            await until_event("squad:task-wave-started")
            await api.post(path + "/pause")
            await until_event("squad:execution-paused")
            await api.post(path + "/steer", {"message": "in verse"})
            await until_event("squad:execution-steered")
            await api.post(f"{path}/tasks/{second}/skip")
            assert (await until_event("squad:task-skipped"))["taskId"] == second
            await api.post(path + "/resume")
            await until_event("squad:execution-resumed")
            held.release.set()
            await until_event("squad:execution-completed")
            # The ledger is whole by the time the last event is out.
            page = await api.get(f"/squads/{squad_id}/history/{made['executionId']}/events")
            assert page["events"][-1]["event"] == "squad:execution-completed"
        report = await api.post(f"/squads/{squad_id}/history/{made['executionId']}/report")
        assert "result" in Path(report).read_text()
    assert held.team.worked == ["first"]
