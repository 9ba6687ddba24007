"""What the squads' stress tests run in a process of its own: an execution brought to a state, in which it stays.

``squad_worker.py <directory> <state>`` prints ``ready <execution id>`` and waits to be killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from actors.models.catalog import Models
from actors.models.provider import ModelRequest
from actors.runtime import open_runtime
from actors.settings import Settings
from actors.squad.requests import AgentGiven, CreateSquad
from actors.squad.values import Role
from actors.testing.model import Answer, hang, say
from tests.squad.kit import Team, wait_phase

SQUAD = "squad.txt"


def settings(directory: Path) -> Settings:
    """Return the settings that both processes use."""
    return Settings(
        data_dir=directory / "data",
        database=directory / "greenroom.db",
        environment={},
        default_model="scripted/m",
    )


def team(state: str) -> Team:
    """Return a model that never answers where the state is to last."""

    def planner(_: ModelRequest) -> Answer | str:
        if state == "planning":
            return hang()
        return '[{"id": "a", "title": "first"}, {"id": "b", "title": "second", "dependsOn": ["a"]}]'

    def work(_: ModelRequest, title: str) -> Answer:
        return hang() if title == "second" and state in ("executing", "paused") else say(f"result of {title}")

    return Team(
        planner=planner, work=work, aggregate=lambda _: hang() if state == "aggregating" else say("all")
    )


def models(directory: Path, found: Team) -> Models:
    """Return a registry with the scripted model."""
    registry = Models({}, directory / "data")
    registry.register("scripted", found.model)
    return registry


async def main(directory: Path, state: str) -> None:
    """Bring an execution to ``state`` and stay there."""
    found = team(state)
    async with open_runtime(settings(directory), models=models(directory, found)) as runtime:
        squad = await runtime.squad_store.create(
            CreateSquad(
                name="Testers",
                workspace_path=str(directory / "space"),
                agents=(
                    AgentGiven(id="a-pia", name="pia", role=Role("planner")),
                    AgentGiven(id="a-ann", name="ann", role=Role("developer")),
                ),
                planner_agent_id="a-pia",
            )
        )
        await runtime.squad_store.init_workspace(squad.id, squad.workspace_path)
        (directory / SQUAD).write_text(squad.id)
        engine = runtime.squads
        run = await engine.submit(squad.id, "go", auto_approve=state != "awaiting_approval")
        with engine.follow(squad.id) as follower:
            while True:
                now = await engine.execution(squad.id, run.id)
                working = now.plan is not None and now.plan.tasks[1].status == "in_progress"
                if state == "paused" and working and now.phase == "executing":
                    await engine.pause(squad.id, run.id, "by hand")
                    break
                if now.phase == state and (working or state != "executing"):
                    break
                await follower.next()
        if state == "completed":
            await wait_phase(engine, squad.id, run.id, "completed")
        os.write(1, f"ready {run.id}\n".encode())
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
