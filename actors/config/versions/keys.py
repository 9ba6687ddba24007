"""Which version brought a key and which keys are gone, for the hints of the loader; a table and its look-up."""

from __future__ import annotations

from actors.config.schema import LATEST

_ADDED: dict[int, dict[str, str]] = {
    2: {
        "Agent": "code_mode_tools max_iterations add_prompt_files",
        "Model": "track_usage thinking_budget",
    },
    3: {
        "Config": "providers rag permissions",
        "Agent": "welcome_message handoffs structured_output skills hooks",
        "Model": "routing",
        "Metadata": "version",
    },
    4: {"Agent": "fallback add_description_parameter", "Metadata": "description"},
    6: {"Config": "mcps"},
    7: {
        "Agent": "redact_secrets max_consecutive_tool_calls max_old_tool_call_tokens cache",
        "Model": "task_budget auth",
        "Provider": (
            "provider temperature max_tokens top_p frequency_penalty presence_penalty parallel_tool_calls "
            "provider_opts track_usage thinking_budget task_budget auth unload_api"
        ),
    },
    10: {
        "Config": "commands skills toolsets runtime budget budgets flavors",
        "Agent": (
            "harness safety readonly session_compaction compaction_threshold compaction_model "
            "max_tool_result_tokens force_handoff instruction_file budgets use_commands use_skills use_toolsets"
        ),
        "Model": (
            "first_available title_model compaction_model compaction_threshold capabilities cost description "
            "bypass_models_gateway"
        ),
        "Provider": "compaction_model",
        "Metadata": "tags",
    },
}
_SINCE = {
    (kind, key): version
    for version, kinds in _ADDED.items()
    for kind, keys in kinds.items()
    for key in keys.split()
}
_REMOVED = {
    ("Config", "env"): 1,
    ("Config", "workflow"): 2,
    ("Agent", "rag"): 6,
    ("Model", "env"): 1,
    ("Model", "headers"): 6,
    ("Provider", "headers"): 6,
    ("Fallback", "no_fallback_status_codes"): 6,
    ("Toolset", "env_file"): 1,
    ("Toolset", "sandbox"): 6,
}
"""Object and key → the last version that had it."""


def since(kind: str, key: str) -> int:
    """Return the version from which an object of ``kind`` has ``key``; 1 when it always had."""
    return _SINCE.get((kind, key), 1)


def newer_hint(kind: str, key: str, version: int) -> str:
    """Return the hint for a key that ``version`` does not have yet."""
    return (
        f"this key is supported by config version {since(kind, key)}; "
        f"update the top-level 'version' field (currently {version}, latest {LATEST})"
    )


def removed_hint(kind: str, key: str) -> str:
    """Return the hint for a key that an older version had; empty for any other."""
    last = _REMOVED.get((kind, key))
    return f"this key was last supported by config version {last}" if last else ""
