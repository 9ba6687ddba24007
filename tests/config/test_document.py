"""The JSON of ``GET /api/agents/:id``."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.config.document import config_document
from actors.config.load import load
from actors.tools.options import OPTIONS

ALWAYS = {"remote": {"url": ""}, "api_config": {}, "webhook_config": {}}


def document(text: str) -> dict[str, Any]:
    return config_document(load(text))


def test_agents_are_a_list_with_capitalised_names_and_empty_keys_are_left_out() -> None:
    assert document("agents: {root: {model: openai/x}, b: {description: d}}") == {
        "agents": [{"Name": "root", "model": "openai/x"}, {"Name": "b", "description": "d"}],
        "metadata": {},
    }


def test_top_level_keys_come_in_the_documented_order() -> None:
    keys = list(
        document("""
version: "15"
flavors: {f: {agents: {a: {model: openai/y}}}}
budgets: {b: {max_cost: 1}}
budget: {max_time: 90s}
runtime: {safety: strict}
permissions: {ask: [shell]}
metadata: {tags: [x]}
toolsets: {t: {type: think}}
skills: {s: [git]}
commands: {c: {x: y}}
rag: {r: {docs: [d]}}
mcps: {m: {command: x}}
models: {m: {provider: p, model: q}}
providers: {p: {base_url: "https://example.com"}}
agents: {a: {}}
""")
    )
    assert keys == [
        "version", "agents", "providers", "models", "mcps", "rag", "commands", "skills", "toolsets", "metadata",
        "permissions", "runtime", "budget", "budgets", "flavors",
    ]  # fmt: skip


def test_every_toolset_has_the_three_objects() -> None:
    (agent,) = document("""
agents:
  a:
    toolsets:
      - type: think
      - {type: mcp, remote: {url: "https://x", headers: {A: "${env.A}"}, oauth: {clientId: i}}}
      - {type: api, api_config: {name: n, endpoint: "https://y"}}
      - {type: webhook, webhook_config: {url: "https://z"}}
      - {type: fetch, defer: true}
""")["agents"]
    think, mcp, api, webhook, fetch = agent["toolsets"]
    assert think == {"type": "think", **ALWAYS}
    assert mcp["remote"] == {"url": "https://x", "headers": {"A": "${env.A}"}, "oauth": {"clientId": "i"}}
    assert api == {"type": "api", **ALWAYS, "api_config": {"name": "n", "endpoint": "https://y"}}
    assert webhook == {"type": "webhook", **ALWAYS, "webhook_config": {"url": "https://z"}}
    assert fetch == {"type": "fetch", "defer": True, **ALWAYS}


def test_fallbacks_always_have_a_cooldown_as_go_prints_it() -> None:
    agents = document(
        "agents: {a: {fallback: {models: [o/x]}}, b: {fallback: {cooldown: 90s, retries: -1}}}"
    )["agents"]
    assert agents[0]["fallback"] == {"models": ["o/x"], "cooldown": ""}
    assert agents[1]["fallback"] == {"retries": -1, "cooldown": "1m30s"}


def test_commands_are_objects_even_when_written_as_text() -> None:
    (agent,) = document("agents: {a: {commands: {x: text, y: {description: d, url: u}}}}")["agents"]
    assert agent["commands"] == {"x": {"instruction": "text"}, "y": {"description": "d", "url": "u"}}


def test_skills_are_true_or_a_list_or_left_out() -> None:
    agents = document("""
agents:
  a: {skills: true}
  b: {skills: [local]}
  c: {skills: [local, git, {name: n, instructions: i}]}
  d: {skills: false}
  e: {}
""")["agents"]
    assert [agent.get("skills") for agent in agents] == [
        True, True, ["local", "git", {"name": "n", "instructions": "i"}], None, None,
    ]  # fmt: skip


def test_switches_away_from_their_default_are_shown() -> None:
    (agent,) = document("agents: {a: {redact_secrets: false, session_compaction: false, add_date: false}}")[
        "agents"
    ]
    assert agent == {"Name": "a", "redact_secrets": False, "session_compaction": False}


def test_numbers_that_mean_off_are_shown() -> None:
    models = document(
        "agents: {a: {}}\nmodels: {m: {provider: p, model: q, thinking_budget: 0, temperature: 0}}"
    )["models"]
    assert models["m"] == {"temperature": 0.0, "thinking_budget": 0, "provider": "p", "model": "q"}


def test_free_parameters_of_a_rag_strategy_are_flat() -> None:
    rag = document("agents: {a: {}}\nrag: {r: {strategies: [{type: bm25, k1: 1.5, limit: 3}]}}")["rag"]
    assert rag["r"]["strategies"] == [{"type": "bm25", "limit": 3, "k1": 1.5}]


def test_secrets_stay_references() -> None:
    text = "agents: {a: {toolsets: [{type: shell, env: {K: '${env.KEY}'}}]}}"
    assert document(text)["agents"][0]["toolsets"][0]["env"] == {"K": "${env.KEY}"}


NAME = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
PLAIN = [
    kind
    for kind in OPTIONS
    if kind in ("shell", "filesystem", "think", "todo", "fetch", "memory", "git", "plan")
]
TOOLSET = st.fixed_dictionaries(
    {"type": st.sampled_from(PLAIN)},
    optional={
        "tools": st.lists(NAME, max_size=2),
        "readonly": st.booleans(),
        "defer": st.booleans() | st.lists(NAME),
    },
)
COMMANDS = st.dictionaries(NAME, NAME.map(lambda text: {"instruction": text}), max_size=2)
COOLDOWN = st.integers(0, 9999).map(lambda count: {"cooldown": f"{count}ms"})
AGENT: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "model": NAME.map("openai/{}".format),
        "description": st.text(alphabet="aé '\"\n:#-{", max_size=12),
        "instruction": st.text(alphabet="aé '\"\n:#-{$", max_size=12),
        "toolsets": st.lists(TOOLSET, max_size=3),
        "commands": COMMANDS,
        "skills": st.booleans() | st.lists(NAME, max_size=2),
        "redact_secrets": st.booleans(),
        "max_iterations": st.integers(0, 99),
        "fallback": COOLDOWN,
    },
)


@given(st.dictionaries(NAME, AGENT, min_size=1, max_size=3))
def test_a_document_loads_back_into_the_same_document(agents: dict[str, Any]) -> None:
    shown = document(json.dumps({"agents": agents}))
    again: dict[str, Any] = {**shown, "agents": {}}
    for agent in shown["agents"]:
        kept = {key: value for key, value in agent.items() if key != "Name"}
        for toolset in kept.get("toolsets", []):
            for key, empty in ALWAYS.items():
                if toolset[key] == empty:
                    del toolset[key]
        again["agents"][agent["Name"]] = kept
    assert document(json.dumps(again, ensure_ascii=False)) == document(json.dumps({"agents": agents}))
