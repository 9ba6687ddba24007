"""What must hold between the objects of a file."""

# ruff: noqa: E501 - a table is read row by row

from __future__ import annotations

import pytest

from actors.config.errors import ConfigError
from actors.config.load import load
from actors.config.references import external_name, is_external


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agents: {a: {model: gpt}}", "agents.a.model: 'gpt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {model: smrt}}\nmodels: {smart: {provider: p, model: m}}", "agents.a.model: 'smrt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1); did you mean 'smart'?"),
        ("agents: {a: {model: 'openai/x, gpt'}}", "agents.a.model: 'gpt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {model: /x}}", "agents.a.model: '/x' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {fallback: {models: [gpt]}}}", "agents.a.fallback.models[0]: 'gpt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {toolsets: [{type: think, model: gpt}]}}", "agents.a.toolsets[0].model: 'gpt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {toolsets: [{type: model_picker, models: [gpt]}]}}", "agents.a.toolsets[0].models[0]: 'gpt' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:1)"),
        ("agents: {a: {sub_agents: [b]}}", "agent 'a' references non-existent sub-agent 'b' (f.yaml:1)"),
        ("agents: {a: {handoffs: [bb]}, bbb: {}}", "agent 'a' references non-existent handoff agent 'bb' (f.yaml:1); did you mean 'bbb'?"),
        ("agents: {a: {force_handoff: b}}", "agent 'a' references non-existent force_handoff agent 'b' (f.yaml:1)"),
        ("agents: {a: {force_handoff: a}}", "agent 'a' cannot force_handoff to itself (f.yaml:1)"),
        ("agents:\n  a: {force_handoff: b}\n  b: {force_handoff: c}\n  c: {force_handoff: b}", "force_handoff cycle detected involving agent 'b' (f.yaml:3)"),
        ("agents: {a: {sub_agents: [me/b]}, b: {}}", "agent 'a': external sub-agent 'me/b' resolves to name 'b' which conflicts with a locally-defined agent (f.yaml:1)"),
        ("agents: {a: {sub_agents: ['b:me/c']}, b: {}}", "agent 'a': external sub-agent 'b:me/c' resolves to name 'b' which conflicts with a locally-defined agent (f.yaml:1)"),
        ("agents: {a/b: {}}", "'a/b' is not usable as an agent's name (f.yaml:1)"),
        ("agents: {a: {budgets: [big]}}", "agents.a.budgets[0]: 'big' is not defined under 'budgets' (f.yaml:1)"),
        ("agents: {a: {use_toolsets: [x]}}", "agents.a.use_toolsets[0]: 'x' is not defined under 'toolsets' (f.yaml:1)"),
        ("agents: {a: {use_commands: [x]}}", "agents.a.use_commands[0]: 'x' is not defined under 'commands' (f.yaml:1)"),
        ("agents: {a: {use_skills: [x]}}", "agents.a.use_skills[0]: 'x' is not defined under 'skills' (f.yaml:1)"),
        ("agents: {a: {skills: [{name: n, instructions: i, toolsets: [x]}]}}", "agents.a.skills[0].toolsets[0]: 'x' is not defined under 'toolsets' (f.yaml:1)"),
        ("agents: {a: {skills: [{name: n}]}}", "agents.a.skills[0] needs a 'name' and 'instructions' (f.yaml:1)"),
        ("agents: {a: {toolsets: [{type: mcp, ref: x}]}}", "agents.a.toolsets[0].ref: 'x' is not defined under 'mcps' (f.yaml:1)"),
        ("agents: {a: {toolsets: [{type: rag, ref: x}]}}", "agents.a.toolsets[0].ref: 'x' is not defined under 'rag' (f.yaml:1)"),
        ("agents: {a: {}}\nmcps: {s: {ref: s}}", "mcps.s.ref: 's' must say how to reach its server (f.yaml:2)"),
        ("agents: {a: {}}\nmcps: {s: {type: shell, command: x}}", "mcps.s.type must be 'mcp', not 'shell' (f.yaml:2)"),
        ("agents: {a: {instruction: x, instruction_file: y}}", "agent 'a': 'instruction' and 'instruction_file' are mutually exclusive, set only one (f.yaml:1)"),
        ("agents: {a: {commands: {'x y': z}}}", "agents.a.commands.x y: 'x y' is not usable as a command's name (f.yaml:1)"),
        ("agents: {a: {commands: {x: {agent: b}}}}", "agents.a.commands.x references non-existent agent 'b' (f.yaml:1)"),
        ("agents: {a: {hooks: {stop: {type: model}}}}", "agents.a.hooks.stop[0]: a hook of type 'model' needs a 'prompt' (f.yaml:1)"),
        ("agents: {a: {hooks: {stop: [{name: x}]}}}", "agents.a.hooks.stop[0]: a hook of type 'command' needs a 'command' (f.yaml:1)"),
        ("agents: {a: {hooks: {pre_tool_use: {matcher: '(', hooks: {command: x}}}}}", "agents.a.hooks.pre_tool_use[0].matcher: '(' is no regular expression: missing ), unterminated subpattern at position 0 (f.yaml:1)"),
        ("agents: {a: {toolsets: [{type: think, toon: '['}]}}", "agents.a.toolsets[0].toon: '[' is no regular expression: unterminated character set at position 0 (f.yaml:1)"),
        ("agents: {a: {}}\nmodels: {m: {provider: p}}", "models.m needs the key 'model' (f.yaml:2)"),
        ("agents: {a: {}}\nmodels: {m: {first_available: [openai/x], temperature: 1}}", "models.m: 'first_available' cannot be combined with 'temperature' (f.yaml:2)"),
        ("agents: {a: {}}\nmodels: {m: {first_available: [m]}}", "models.m.first_available[0]: the model refers to itself (f.yaml:2)"),
        ("agents: {a: {}}\nmodels: {m: {provider: p, model: q, routing: [{model: x}]}}", "models.m.routing[0].model: 'x' is neither a key of 'models' nor of the form 'provider/model' (f.yaml:2)"),
        ("agents: {a: {}}\nproviders: {a/b: {}}", "'a/b' is not usable as a provider's name (f.yaml:2)"),
    ],
)  # fmt: skip
def test_a_violated_rule_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, "f.yaml")
    assert [str(problem) for problem in caught.value.problems] == [message]


@pytest.mark.parametrize(
    "text",
    [
        "agents: {a: {model: auto, sub_agents: [me/helper, 'h:https://example.com/x.yaml']}}",
        "agents: {a: {handoffs: [b], force_handoff: b}, b: {handoffs: [a]}}",
        "agents: {a: {force_handoff: b}, b: {force_handoff: c}, c: {}, d: {force_handoff: b}}",
        "agents: {a: {model: m}}\nmodels: {m: {first_available: [n, openai/x]}, n: {provider: p, model: q}}",
        "agents: {a: {hooks: {pre_tool_use: [{matcher: '*', hooks: [{command: x}]}]}}}",
        "agents: {a: {commands: {x: {agent: b, instruction: y}}}, b: {}}",
        "agents: {a: {toolsets: [{type: rag, ref: d}]}}\nrag: {d: {docs: [x], strategies: [{type: bm25, k1: 1.2}]}}",
    ],
)
def test_what_keeps_the_rules_loads(text: str) -> None:
    assert load(text).agents


def test_several_violations_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        load("agents: {a: {model: x, sub_agents: [y], budgets: [z]}}")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("ref", "name", "source"),
    [
        ("me/helper", "helper", "me/helper"),
        ("docker.io/me/helper:v2", "helper", "docker.io/me/helper:v2"),
        ("localhost:5000/me/helper@sha256:0a", "helper", "localhost:5000/me/helper@sha256:0a"),
        ("h:me/helper", "h", "me/helper"),
        ("h:https://example.com/a.yaml", "h", "https://example.com/a.yaml"),
        (
            "https://example.com/dir/agent.yaml?token=1/2",
            "agent",
            "https://example.com/dir/agent.yaml?token=1/2",
        ),
    ],
)
def test_external_references_have_a_local_name(ref: str, name: str, source: str) -> None:
    assert is_external(ref)
    assert external_name(ref) == (name, source)
