"""The squad that a workspace's manifest describes, as it would be stored. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from actors.errors import Invalid, Rejected
from actors.squad import lineups
from actors.squad.requests import AgentGiven, ManifestHead, RestoreConflicts, RestorePreview
from actors.squad.values import Squad

JSON = Any


class _Config(Struct, frozen=True, rename="camel"):
    """What is taken of a manifest's configuration; agents are looked at one by one."""

    id: str = ""
    name: str = ""
    description: str | None = None
    agents: tuple[msgspec.Raw, ...] = ()
    planner_agent_id: str | None = None
    workspace_path: str = ""
    created_at: str = ""
    updated_at: str = ""


def preview(
    path: str, head: ManifestHead, config: JSON, known: Sequence[Squad], new_id: Callable[[], str]
) -> RestorePreview:
    """Return what would be restored, with what cannot be and what stands in the way.

    Args:
        path: Where the workspace is now.
        head: The manifest's word on itself.
        config: Its squad, as JSON.
        known: The squads there are.
        new_id: Makes ids for agents without one.

    Raises:
        Invalid: it describes no squad.
    """
    try:
        found = msgspec.json.decode(msgspec.json.encode(config), type=_Config)
    except msgspec.ValidationError as error:
        raise Invalid(f"the manifest describes no squad: {error}") from error
    warnings: list[str] = []
    given: list[AgentGiven] = []
    for number, raw in enumerate(found.agents):
        try:
            agent = msgspec.json.decode(raw, type=AgentGiven)
            lineups.lineup([*given, agent], new_id)
        except (msgspec.ValidationError, Rejected) as error:
            warnings.append(f"agents[{number}] is left out: {error}")
        else:
            given.append(agent)
    agents = lineups.lineup(given, new_id)
    planner = found.planner_agent_id
    if planner is not None and all(agent.id != planner for agent in agents):
        warnings.append(f"plannerAgentId {planner!r} is no agent and is cleared")
        planner = None
    if found.workspace_path and found.workspace_path != path:
        warnings.append(f"the workspace was at {found.workspace_path}")
    squad = Squad(
        id=found.id or head.squad_id,
        name=found.name or head.squad_name or os.path.basename(path),  # noqa: PTH119 - a text
        description=found.description or "",
        workspace_path=path,
        agents=agents,
        planner_agent_id=planner,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )
    conflicts = RestoreConflicts(
        id_exists=any(each.id == squad.id for each in known),
        path_in_use=any(each.workspace_path == path for each in known),
    )
    return RestorePreview(
        squad=squad,
        workspace_path=path,
        manifest=head,
        conflicts=conflicts,
        warnings=tuple(warnings),
        id=squad.id,
        name=squad.name,
        agents=agents,
    )
