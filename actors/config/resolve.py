"""A checked configuration → one without references inside the file: groups merged in, instruction files read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from actors.config import yaml
from actors.config.errors import ConfigError
from actors.config.schema import Agent, Command, Config, Skill, Toolset
from actors.config.stamp import Stamp, stamp_or_absent
from actors.tools.options import McpOptions

LOCAL = Skill(source="local")
"""What ``skills: true`` stands for."""


class InstructionReader:
    """Reads ``instruction_file`` from one directory and never from outside it.

    Args:
        directory: The agent file's directory; ``None`` refuses every file.

    Attributes:
        stamps: Every file that was asked for and its version before it was read, to watch them.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.stamps: dict[Path, Stamp] = {}

    def text(self, name: str) -> str:
        """Return one file's text.

        Raises:
            ValueError: outside the directory, missing, too large or not UTF-8, said in words.
        """
        if self._directory is None:
            raise ValueError("'instruction_file' works for local files only")
        root = self._directory.resolve()
        try:
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):
            raise ValueError(f"instruction_file {name[:200]!r} is not a usable path") from None
        if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_relative_to(root):
            raise ValueError(
                f"instruction_file {name[:200]!r} must be a relative path inside the agent file's directory"
            )
        self.stamps[path] = stamp_or_absent(path)
        try:
            with path.open("rb") as opened:
                content = opened.read(yaml.MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"instruction_file {name[:200]!r} cannot be read: {error.strerror}") from error
        if len(content) > yaml.MAX_BYTES:
            raise ValueError(f"instruction_file {name[:200]!r} is larger than {yaml.MAX_BYTES} bytes")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"instruction_file {name[:200]!r} is not UTF-8 text") from None


def resolve(config: Config, reader: InstructionReader, lines: Mapping[str, int], file: str = "") -> Config:
    """Return the configuration with every reference inside the file replaced by what it refers to.

    Instruction files become ``instruction`` (several are joined by blank lines); ``use_commands``, ``use_skills`` and
    ``use_toolsets`` are merged into the agent's own (which win by name); ``{type: mcp, ref: name}`` becomes the entry
    of ``mcps`` with the toolset's other keys laid over it. Environment references stay as written.

    Raises:
        ConfigError: an instruction file cannot be used.
    """
    agents: dict[str, Agent] = {}
    for name, agent in config.agents.items():
        try:
            texts = [reader.text(path) for path in agent.instruction_file]
        except ValueError as error:
            key = f"agents.{name}.instruction_file"
            raise ConfigError(f"agent '{name}': {error}", file, lines.get(key, 0), key) from error
        used = [config.toolsets[group] for group in agent.use_toolsets]
        agents[name] = structs.replace(
            agent,
            instruction="\n\n".join(texts) if texts else agent.instruction,
            instruction_file=[],
            toolsets=[_toolset(toolset, config) for toolset in (*agent.toolsets, *used)],
            commands=_commands(agent, config),
            skills=_skills(agent, config),
            use_commands=[],
            use_skills=[],
            use_toolsets=[],
        )
    toolsets = {name: _toolset(toolset, config) for name, toolset in config.toolsets.items()}
    return structs.replace(config, agents=agents, toolsets=toolsets)


def _commands(agent: Agent, config: Config) -> dict[str, Command]:
    merged: dict[str, Command] = {}
    for group in agent.use_commands:
        merged.update(config.commands[group])
    return {**merged, **agent.commands}


def _skills(agent: Agent, config: Config) -> bool | list[Skill] | None:
    groups = [skill for group in agent.use_skills for skill in config.skills[group]]
    if not groups:
        return agent.skills
    own = agent.skills if isinstance(agent.skills, list) else [LOCAL] if agent.skills else []
    return [*own, *groups]


def _toolset(toolset: Toolset, config: Config) -> Toolset:
    if not isinstance(toolset, McpOptions) or toolset.ref not in config.mcps:
        return toolset
    plain = McpOptions(type="mcp", ref=toolset.ref)
    own = {
        name: getattr(toolset, name)
        for name in McpOptions.__struct_fields__
        if getattr(toolset, name) != getattr(plain, name)
    }
    return structs.replace(config.mcps[toolset.ref], **own)
