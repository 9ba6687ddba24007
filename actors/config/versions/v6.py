"""Version 6 to 7: an agent's ``rag`` list becomes toolsets that refer to the top-level sources."""

from __future__ import annotations

from actors.config import yaml


def upgrade(document: yaml.Mapping) -> yaml.Mapping:
    """Return the document with each agent's ``rag`` names as toolsets of type ``rag``; other shapes stay."""
    agents = document.entries.get("agents")
    if agents is None or not isinstance(agents.node, yaml.Mapping):
        return document
    changed = {
        name: yaml.Entry(_agent(entry.node), entry.line) for name, entry in agents.node.entries.items()
    }
    node = yaml.Mapping(changed, agents.node.line)
    return yaml.Mapping({**document.entries, "agents": yaml.Entry(node, agents.line)}, document.line)


def _agent(agent: yaml.Node) -> yaml.Node:
    if not isinstance(agent, yaml.Mapping) or "rag" not in agent.entries:
        return agent
    rag = agent.entries["rag"]
    toolsets = agent.entries.get("toolsets")
    present = toolsets.node.items if toolsets and isinstance(toolsets.node, yaml.Sequence) else []
    if not isinstance(rag.node, yaml.Sequence) or (toolsets and not isinstance(toolsets.node, yaml.Sequence)):
        return agent
    added = [_toolset(name) for name in rag.node.items]
    entries = {key: entry for key, entry in agent.entries.items() if key != "rag"}
    line = toolsets.line if toolsets else rag.line
    entries["toolsets"] = yaml.Entry(yaml.Sequence([*present, *added], line), line)
    return yaml.Mapping(entries, agent.line)


def _toolset(name: yaml.Node) -> yaml.Node:
    kind = yaml.Entry(yaml.Scalar("rag", False, name.line), name.line)
    return yaml.Mapping({"type": kind, "ref": yaml.Entry(name, name.line)}, name.line)
