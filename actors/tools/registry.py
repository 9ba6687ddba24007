"""From a toolset's options in the YAML file to the toolset itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from actors.errors import Invalid, Unsupported
from actors.tools import options as kinds
from actors.tools.builtin.background_jobs import BackgroundJobs, Recall
from actors.tools.builtin.fetch import Fetch
from actors.tools.builtin.filesystem import Filesystem
from actors.tools.builtin.git import Git
from actors.tools.builtin.memory import Memories
from actors.tools.builtin.plan import SessionPlan, SharedPlans
from actors.tools.builtin.script import Scripts
from actors.tools.builtin.session_context import SessionContext, SessionReader
from actors.tools.builtin.shell import Shell
from actors.tools.builtin.tasks import Tasks
from actors.tools.builtin.think import Think
from actors.tools.builtin.todo import TodoList, Todos
from actors.tools.builtin.user_prompt import OpenUrl, UserPrompt
from actors.tools.builtin.webhook import Webhook
from actors.tools.egress import Egress, Reach, Resolver, resolve
from actors.tools.http_api.toolset import ApiToolset, OpenApiToolset
from actors.tools.jobs import Jobs
from actors.tools.plans import Plans
from actors.tools.tool import JSON, Toolset
from actors.tools.wrappers import Instructed, only, read_only


class Deps(Struct, frozen=True, kw_only=True):
    """What toolsets share beyond one call; made once per session by whoever builds its agents.

    Attributes:
        jobs: The runtime's background jobs.
        plans: The runtime's shared plans.
        todos: The session's list for agents whose todo toolset is ``shared``.
        recall: Sends a message to a session's agent when a background job ends.
        resolver: Finds addresses for HTTP tools.
        sessions: Where earlier conversations can be read.
        reach: Private targets the operator lets API tools reach.
    """

    jobs: Jobs | None = None
    plans: Plans | None = None
    todos: TodoList = field(default_factory=TodoList)
    recall: Recall | None = None
    resolver: Resolver = resolve
    sessions: SessionReader | None = None
    reach: Reach = field(default_factory=Reach)


Builder = Callable[[Any, Deps], Toolset]


def _background_jobs(options: kinds.BackgroundJobsOptions, deps: Deps) -> Toolset:
    if deps.jobs is None:
        raise Unsupported("background jobs are not available in this runtime")
    return BackgroundJobs(options, deps.jobs, deps.recall)


def _plan(options: kinds.PlanOptions, deps: Deps) -> Toolset:
    if deps.plans is None:
        raise Unsupported("shared plans are not available in this runtime")
    return SharedPlans(options, deps.plans)


def _session_context(options: kinds.SessionContextOptions, deps: Deps) -> Toolset:
    if deps.sessions is None:
        raise Unsupported("earlier sessions cannot be read in this runtime")
    return SessionContext(options, deps.sessions)


def _todo(options: kinds.TodoOptions, deps: Deps) -> Toolset:
    return Todos(deps.todos if options.shared else TodoList())


def _egress(deps: Deps, *, allow_private: bool) -> Egress:
    return Egress(allow_private=allow_private, resolver=deps.resolver, reach=deps.reach)


BUILDERS: Mapping[str, Builder] = {
    "api": lambda options, deps: ApiToolset(options, _egress(deps, allow_private=options.allow_private_ips)),
    "background_jobs": _background_jobs,
    "fetch": lambda options, deps: Fetch(options, deps.resolver),
    "filesystem": lambda options, _: Filesystem(options),
    "git": lambda options, _: Git(options),
    "memory": lambda options, _: Memories(options),
    "openapi": lambda options, deps: OpenApiToolset(
        options, _egress(deps, allow_private=options.allow_private_ips)
    ),
    "open_url": lambda options, _: OpenUrl(options),
    "plan": _plan,
    "script": lambda options, _: Scripts(options),
    "session_context": _session_context,
    "session_plan": lambda options, _: SessionPlan(options),
    "shell": lambda options, _: Shell(options),
    "tasks": lambda options, _: Tasks(options),
    "think": lambda options, _: Think(options),
    "todo": _todo,
    "user_prompt": lambda options, _: UserPrompt(options),
    "webhook": lambda options, deps: Webhook(options, deps.resolver),
}
"""Toolset type → how to build it, for the types that need nothing but :class:`Deps`."""


def read_options(raw: Mapping[str, JSON]) -> kinds.Common:
    """Check a toolset's entry of the YAML file.

    Raises:
        Invalid: no or an unknown ``type``, an unknown key, or a wrong value; the message names it.
    """
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in kinds.OPTIONS:
        raise Invalid(f"toolset type {kind!r} is unknown (known: {', '.join(kinds.OPTIONS)})")
    try:
        return msgspec.convert(raw, kinds.OPTIONS[kind])
    except msgspec.ValidationError as error:
        raise Invalid(f"toolset of type '{kind}': {error}") from error


def build_toolset(options: kinds.Common, deps: Deps, builders: Mapping[str, Builder] = BUILDERS) -> Toolset:
    """Build a toolset, with the wrappers its common options ask for.

    ``toon``, ``model`` and ``defer`` are the agent loop's to obey.

    Args:
        options: From :func:`read_options`.
        deps: What toolsets share.
        builders: The known types; a caller with more types passes ``{**BUILDERS, ...}``.

    Raises:
        Unsupported: nothing here builds this type.
    """
    builder = builders.get(options.type)
    if builder is None:
        raise Unsupported(
            f"toolset type '{options.type}' is not available in this runtime", type=options.type
        )
    toolset = builder(options, deps)
    if options.tools:
        toolset = only(toolset, frozenset(options.tools))
    if options.readonly:
        toolset = read_only(toolset)
    if options.instruction:
        toolset = Instructed(toolset, options.instruction)
    return toolset
