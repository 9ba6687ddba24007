"""Reusable lineups: the built-in ones, those of users in the data directory, and what a template must be."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from actors.errors import Denied, Invalid, NotFound, Unavailable
from actors.squad import disk
from actors.squad.lineups import to_template
from actors.squad.paths import is_reserved
from actors.squad.requests import SaveAsTemplate, Template, TemplateAgent
from actors.squad.values import Squad, ToolConfig

JSON = Any
T = TypeVar("T")
SCHEMA_VERSION = 2
"""The newest form of a template that is understood. Form 1 has no ``toolConfig`` and no ``modelPreferences``."""
ID_LENGTH = 200
NAME_LENGTH = 200
UNNAMED = "user-"
"""The id of a template that brings none; it gets one when it is stored."""
DESCRIPTION_LENGTH = 5000
AGENTS_LIMIT = 50
PROMPT_LENGTH = 50_000
TOOLS_LIMIT = 100
FILE_LIMIT = 16 * 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9._-]+\Z")
logger = logging.getLogger("greenroom.squad")


@cache
def builtins() -> tuple[Template, ...]:
    """Return the templates that come with the program."""
    folder = resources.files("actors.squad") / "teams"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name
    )
    found = [replace(parse(file.read_bytes()), is_builtin=True) for file in files]
    return tuple(sorted(found, key=lambda template: template.id != "builtin-fullstack-dev-team"))


def parse(data: bytes) -> Template:
    """Return the template that a JSON text is. Raises: Invalid."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the template is not JSON: {error}") from error
    return validate(raw)


def validate(raw: JSON) -> Template:
    """Return a template as it is stored, never built-in; fields that templates do not have are dropped.

    Raises:
        Invalid: it breaks a rule; the message names the field.
    """
    try:
        fields = msgspec.convert(raw, dict[str, Any])
        template = msgspec.convert({**fields, "id": fields.get("id") or UNNAMED}, Template)
    except msgspec.ValidationError as error:
        raise Invalid(f"template: {error}") from error
    if template.schema_version > SCHEMA_VERSION:
        raise Invalid(
            f"schemaVersion {template.schema_version} is newer than {SCHEMA_VERSION}, the newest known"
        )
    if template.schema_version < 1:
        raise Invalid("schemaVersion must be at least 1")
    if len(template.id) > ID_LENGTH or not _ID.match(template.id) or _unsafe(template.id):
        raise Invalid(f"id must be up to {ID_LENGTH} of the characters A-Z a-z 0-9 . _ -")
    if not 1 <= len(template.name.strip()) <= NAME_LENGTH:
        raise Invalid(f"name must have 1 to {NAME_LENGTH} characters")
    if len(template.description) > DESCRIPTION_LENGTH:
        raise Invalid(f"description has more than {DESCRIPTION_LENGTH} characters")
    if not 1 <= len(template.agents) <= AGENTS_LIMIT:
        raise Invalid(f"a template has 1 to {AGENTS_LIMIT} agents")
    return replace(
        template,
        is_builtin=False,
        schema_version=SCHEMA_VERSION,
        agents=tuple(_checked(number, agent) for number, agent in enumerate(template.agents)),
    )


def _unsafe(template_id: str) -> bool:
    return template_id.startswith(".") or template_id.endswith(".") or is_reserved(template_id)


def _checked(number: int, agent: TemplateAgent) -> TemplateAgent:
    where = f"agents[{number}]"
    if not agent.name.strip():
        raise Invalid(f"{where}.name is blank")
    if not agent.role.strip():
        raise Invalid(f"{where}.role is blank")
    if len(agent.system_prompt) > PROMPT_LENGTH:
        raise Invalid(f"{where}.systemPrompt has more than {PROMPT_LENGTH} characters")
    config = agent.tool_config or ToolConfig(enabled_tools=agent.tools)
    if len(config.enabled_tools) > TOOLS_LIMIT or len(agent.tools) > TOOLS_LIMIT:
        raise Invalid(f"{where} has more than {TOOLS_LIMIT} tools")
    return replace(agent, tool_config=config, tools=config.enabled_tools)


class Templates:
    """The templates of a server.

    Args:
        directory: Where those of users are; made when the first is stored.
        new_id: Makes ids.
    """

    def __init__(self, directory: Path, new_id: Callable[[], str]) -> None:
        self._directory = directory
        self._new_id = new_id
        self._stored: dict[str, Template] | None = None
        self._lock = trio.Lock()

    async def list(self) -> Sequence[Template]:
        """Return all, the built-in ones first."""
        stored = await self._load()
        return [*builtins(), *sorted(stored.values(), key=lambda template: (template.name, template.id))]

    async def get(self, template_id: str) -> Template:
        """Return a template; also its portable form. Raises: NotFound."""
        for template in builtins():
            if template.id == template_id:
                return template
        found = (await self._load()).get(template_id)
        if found is None:
            raise NotFound(f"template {template_id} not found")
        return found

    async def add(
        self, raw: JSON, *, source_url: str | None = None, installed_at: str | None = None
    ) -> Template:
        """Store a template a client sent; one of a user with the same id is replaced.

        Args:
            raw: Its JSON value.
            source_url: Where it was installed from; the template's own word on that holds only without it.
            installed_at: When.

        Raises:
            Invalid: see :func:`validate`.
            Unavailable: the disk refuses.
        """
        template = validate(raw)
        if template.id == UNNAMED or any(template.id.casefold() == each.id.casefold() for each in builtins()):
            template = replace(template, id=f"user-{self._new_id()}")
        if source_url is not None:
            template = replace(template, source_url=source_url, installed_at=installed_at)
        return await self._store(template)

    async def save(self, squad: Squad, given: SaveAsTemplate) -> Template:
        """Make a template of a squad's lineup. Raises: as :meth:`add`."""
        template = Template(
            id=f"user-{self._new_id()}",
            name=given.name.strip(),
            description=squad.description if given.description is None else given.description,
            icon=given.icon or "",
            agents=to_template(squad.agents),
            schema_version=SCHEMA_VERSION,
        )
        return await self._store(validate(msgspec.to_builtins(template)))

    async def remove(self, template_id: str) -> None:
        """Delete a user's template. Raises: NotFound; Denied, it is built in; Unavailable."""
        if (await self.get(template_id)).is_builtin:
            raise Denied(f"template {template_id} is built in and cannot be deleted")
        async with self._lock:
            await _on_disk(partial(disk.remove_file, self._directory, [f"{template_id}.json"]))
            (self._stored or {}).pop(template_id, None)

    async def _store(self, template: Template) -> Template:
        stored = await self._load()
        async with self._lock:
            clashes = [known for known in stored if known.casefold() == template.id.casefold()]
            if clashes and clashes != [template.id]:
                raise Invalid(f"id {template.id!r} differs from {clashes[0]!r} only by upper and lower case")
            await _on_disk(partial(_write, self._directory, template))
            stored[template.id] = template
        return template

    async def _load(self) -> dict[str, Template]:
        async with self._lock:
            if self._stored is None:
                self._stored = await _on_disk(partial(_read_all, self._directory))
            return self._stored


async def _on_disk(act: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(act)
    except OSError as error:
        raise Unavailable(f"the templates' directory cannot be used: {error}") from error


def _write(directory: Path, template: Template) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    disk.write_json(directory, [f"{template.id}.json"], template)


def _read_all(directory: Path) -> dict[str, Template]:
    found: dict[str, Template] = {}
    for name in disk.names_in(directory, [], ".json"):
        try:
            template = parse(disk.read_file(directory, [name], FILE_LIMIT) or b"")
        except (OSError, Invalid) as error:
            logger.warning("template cannot be read", extra={"file": name, "error": str(error)})
            continue
        if f"{template.id}.json" == name:
            found[template.id] = template
    return found
