"""A configuration as the JSON that ``GET /api/agents/:id`` answers (sessions contract 1.3); a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from msgspec import NODEFAULT, Struct, structs

from actors.config.duration import format_duration, parse_duration
from actors.config.schema import Agent, Budget, Config, Fallback, RagStrategy, Skill, Toolset

JSON = Any


def config_document(config: Config) -> dict[str, JSON]:
    """Return the document of a resolved configuration.

    Keys at their default are left out, except that ``metadata`` is always there, every toolset has ``remote``,
    ``api_config`` and ``webhook_config``, and every fallback has its ``cooldown``. Secrets are not resolved:
    ``${env.X}`` stays as written.
    """
    document = _object(config)
    document["agents"] = [_view(agent) for agent in config.agents.values()]
    document["metadata"] = _object(config.metadata)
    order = [key for _, key, _ in _fields(Config)]
    return {key: document[key] for key in order if document.get(key) or key == "metadata"}


def _view(value: JSON) -> JSON:
    match value:
        case Agent():
            return _agent(value)
        case Toolset():
            return {**_object(value), **_always(value)}
        case Skill():
            return value.source or _object(value)
        case Fallback():
            return {**_object(value), "cooldown": _duration(value.cooldown)}
        case Budget(max_time=limit) if limit:
            return {**_object(value), "max_time": _duration(limit)}
        case RagStrategy():
            return {**_object(value), **value.parameters}
        case Struct():
            return _object(value)
        case _:
            return _plain(value)


def _plain(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_view(item) for item in cast("Sequence[JSON]", value)]
    if isinstance(value, dict):
        return {key: _view(item) for key, item in cast("Mapping[str, JSON]", value).items()}
    return value


def _agent(agent: Agent) -> dict[str, JSON]:
    found = {"Name": agent.name, **_object(agent)}
    if agent.skills == [Skill(source="local")]:
        found["skills"] = True
    elif not agent.skills:
        found.pop("skills", None)
    return found


def _always(toolset: Toolset) -> dict[str, JSON]:
    """Return the three objects that a toolset has whether or not its type knows them."""
    remote = getattr(toolset, "remote", None)
    api = getattr(toolset, "api_config", None)
    webhook = getattr(toolset, "webhook_config", None)
    return {
        "remote": {"url": "", **(_object(remote) if remote else {})},
        "api_config": _object(api) if api else {},
        "webhook_config": _object(webhook) if webhook else {},
    }


def _object(value: Struct) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    for attribute, key, default in _fields(type(value)):
        item = getattr(value, attribute)
        if item != default or isinstance(item, bool) != isinstance(default, bool):
            found[key] = _view(item)
    if isinstance(value, RagStrategy):
        found.pop("parameters", None)
    return found


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, str, JSON], ...]:
    """Return attribute, key and default of each field; the default of a required one equals nothing."""
    return tuple((item.name, item.encode_name, _default(item)) for item in structs.fields(kind))


def _default(item: structs.FieldInfo) -> JSON:
    if item.default_factory is not NODEFAULT:
        return item.default_factory()
    return item.default


def _duration(text: str) -> str:
    return format_duration(parse_duration(text)) if text else ""
