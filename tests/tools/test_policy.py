"""Decisions on calls: tiers, modes, exact texts, and allow rules that cannot be widened."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actors.tools import shell_syntax
from actors.tools.policy import Outcome, Rules, SafetyMode, decide, session_allows, unattended, unavailable
from actors.tools.tool import Annotations, Definition
from tests.tools.kit import sample

SHELL = Definition("shell", category="shell")
READ = Definition("read_file", annotations=Annotations(read_only_hint=True))
WRITE = Definition("write_file")
REMOVE = Definition("remove_directory", annotations=Annotations(destructive_hint=True))
ALLOW_STATUS = Rules(allow=("shell:cmd=git status*",))


def shell(command: str, rules: Rules = ALLOW_STATUS, mode: SafetyMode = "") -> Outcome:
    return decide(SHELL, {"cmd": command}, mode, rules).outcome


@pytest.mark.parametrize("line", sample("shell/chain_allow_git_status.txt"))
def test_safe_prefix_plus_a_second_command_asks(line: str) -> None:
    command = line.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\")
    assert shell(command) == "ask"


@pytest.mark.parametrize(
    "command",
    ["git status", "git status -s", "git status 'a;b'", 'git status "a b" ', "git status\n", "GIT STATUS"],
)
def test_one_simple_command_is_covered(command: str) -> None:
    assert shell(command) == "allow"


@pytest.mark.parametrize("command", ["git push", "git stat\\\nus", "", "sudo git status", "env git status"])
def test_other_commands_are_not_covered(command: str) -> None:
    assert shell(command) == "ask"


@pytest.mark.parametrize(
    "wrapped", ["sudo ls", "env A=1 ls", "command ls", "A=1 ls", "nohup ls", "/usr/bin/env ls"]
)
def test_wrapped_command_asks_even_under_a_wide_allow(wrapped: str) -> None:
    assert shell(wrapped, Rules(allow=("shell:cmd=*",))) == "ask"


TAILS = st.sampled_from(
    [";", "&", "|", "&&", "||", "\n", "`x`", "$(x)", "<(x)", ">y", ">>y", "<y", "#", "'", '"', "\\"]
)


@given(
    st.sampled_from(["git status", "git status -s", 'git status "a b"', "git status 'q'"]),
    st.text(alphabet=" \tab'\"\\", max_size=4),
    TAILS,
    st.text(alphabet=" \tabrm/;&|\n'\"\\$()`#<>", max_size=12),
)
def test_appending_text_never_widens_an_allow(command: str, gap: str, tail: str, rest: str) -> None:
    line = command + gap + tail + rest
    if shell(line) == "allow":
        reading = shell_syntax.read(line.rstrip(" \t\n"))
        assert reading.simple
        assert reading.commands[0].words[:2] == ("git", "status")


@given(st.sampled_from([";", "&", "|", "\n", "`", "$(", "<", ">"]), st.text(alphabet="ab /", max_size=8))
def test_unquoted_operator_always_asks(operator: str, rest: str) -> None:
    assume(operator != "\n" or rest.strip())
    assert shell(f"git status {operator} {rest}", Rules(allow=("shell:cmd=*",))) == "ask"


def test_allow_for_the_whole_tool_covers_chains() -> None:
    assert shell("a; b", Rules(allow=("shell",))) == "allow"
    assert not session_allows(Rules(allow=("shell",)), SHELL, {"cmd": "a; b"})
    assert session_allows(Rules(allow=("shell",)), SHELL, {"cmd": "ls"})
    assert not session_allows(Rules(allow=("shell",), deny=("*:cmd=ls",)), SHELL, {"cmd": "ls"})


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "ls && rm x",
        "ls; rm x",
        "ls | rm x",
        "ls\nrm x",
        "$(rm x)",
        'echo "`rm x`"',
        "bash -c 'rm x'",
        "sudo -u root rm x",
        "env A=1 rm x",
        "A=1 rm x",
        "xargs -0 rm x",
        "r\\m x",
        "'rm' x",
        "/bin/rm x",
        "if true; then rm x; fi",
        "(rm x)",
        "{ rm x; }",
        "eval rm x",
        "timeout 5 rm x",
        "  rm x",
        "nice -n 5 rm x",
        "cat <(rm x)",
    ],
)
def test_deny_sees_every_command_of_a_chain(command: str) -> None:
    assert shell(command, Rules(allow=("shell",), deny=("shell:cmd=rm *",)), "autonomous") == "deny"


def test_deny_does_not_hit_other_words() -> None:
    assert shell("echo 'rm x'", Rules(deny=("shell:cmd=rm *",)), "autonomous") == "allow"


@pytest.mark.parametrize("path", ["secret/a", "./secret/a", "x/../secret/a", "secret//a", "x/./../secret/a"])
def test_deny_of_a_path_holds_for_its_other_spellings(path: str) -> None:
    rules = Rules(deny=("write_file:path=secret/*",))
    assert decide(WRITE, {"path": path}, "autonomous", rules).outcome == "deny"


def test_deny_looks_into_lists() -> None:
    tool = Definition("read_multiple_files")
    assert (
        decide(tool, {"paths": ["a", "./secret/b"]}, "autonomous", Rules(deny=("*:paths=secret/*",))).outcome
        == "deny"
    )


def test_allow_of_a_directory_does_not_cover_a_way_out_of_it() -> None:
    rules = Rules(allow=("write_file:path=src/*", "shell:cmd=cat src/*"))
    assert decide(WRITE, {"path": "src/a"}, "", rules).outcome == "allow"
    assert decide(WRITE, {"path": "src/../../etc/passwd"}, "", rules).outcome == "ask"
    assert shell("cat src/a", rules) == "allow"
    assert shell("cat src/../../etc/passwd", rules) == "ask"
    assert shell('cat "src/../../etc/passwd"', rules) == "ask"


@pytest.mark.parametrize(
    ("mode", "safe", "destructive", "unknown"),
    [
        ("strict", "ask", "ask", "ask"),
        ("balanced", "allow", "ask", "ask"),
        ("autonomous", "allow", "allow", "allow"),
        ("", "allow", "ask", "ask"),
    ],
)
def test_mode_decides_by_label(
    mode: SafetyMode, safe: Outcome, destructive: Outcome, unknown: Outcome
) -> None:
    assert decide(READ, {}, mode).outcome == safe
    assert decide(REMOVE, {}, mode).outcome == destructive
    assert decide(WRITE, {}, mode).outcome == unknown


def test_unchosen_mode_asks_for_safe_shell_commands_and_lets_read_only_tools_pass() -> None:
    assert shell("ls", Rules()) == "ask"
    assert shell("ls", Rules(), "balanced") == "allow"
    assert decide(READ, {}, "").by == "read_only"


TIER: dict[str, Rules] = {
    "-": Rules(),
    "allow": Rules(allow=("write_file",)),
    "ask": Rules(ask=("write_file",)),
    "deny": Rules(deny=("write_file",)),
}


@pytest.mark.parametrize(("session", "team"), list(itertools.product(TIER, TIER)))
def test_session_goes_before_team_and_deny_before_all(session: str, team: str) -> None:
    outcome = decide(WRITE, {}, "strict", TIER[session], TIER[team]).outcome
    if "deny" in {session, team}:
        assert outcome == "deny"
    elif session != "-":
        assert outcome == session
    else:
        assert outcome == (team if team != "-" else "ask")


def test_within_a_tier_deny_beats_allow_beats_ask() -> None:
    every = ("write_file",)
    assert decide(WRITE, {}, "", Rules(every, every, every)).outcome == "deny"
    assert decide(WRITE, {}, "", Rules(every, every)).outcome == "allow"


def test_team_ask_yields_to_a_chosen_mode_and_session_ask_never_does() -> None:
    asks = Rules(ask=("write_file",))
    assert decide(WRITE, {}, "autonomous", team=asks).outcome == "allow"
    assert decide(WRITE, {}, "autonomous", session=asks).outcome == "ask"
    assert decide(READ, {}, "balanced", team=Rules(ask=("read_file",))).outcome == "allow"
    assert decide(READ, {}, "", team=Rules(ask=("read_file",))).outcome == "ask"


@pytest.mark.parametrize(("child", "parent"), list(itertools.product(TIER, TIER)))
def test_child_and_parent_rules_compose_to_the_stricter(child: str, parent: str) -> None:
    strictness = ["allow", "ask", "deny"]
    opinions = [opinion for opinion in (child, parent) if opinion != "-"]
    expected = max(opinions, key=strictness.index, default="allow")
    verdict = decide(WRITE, {}, "autonomous", TIER[child], callers=(TIER[parent],))
    assert verdict.outcome == expected


def test_refusals_have_the_contract_texts() -> None:
    denies = Rules(deny=("write_file",))
    assert decide(WRITE, {}, "", denies).refusal == "Tool 'write_file' is denied by session permissions."
    assert (
        decide(WRITE, {}, "", team=denies).refusal
        == "Tool 'write_file' is denied by permissions configuration."
    )
    assert unavailable("x") == "Tool 'x' is not available. You can only use the tools provided to you."
    assert unattended("x") == "Tool 'x' requires user confirmation but the session is non-interactive."


def test_verdict_names_its_rule_and_label() -> None:
    verdict = decide(SHELL, {"cmd": "rm -rf build"}, "balanced", Rules(ask=("shell:cmd=rm*",)))
    assert (verdict.outcome, verdict.by, verdict.rule, verdict.standing) == (
        "ask",
        "session",
        "shell:cmd=rm*",
        True,
    )
    assert verdict.label.metadata()["safety_label"] == "destructive"


def test_unrelated_allow_does_not_cover_fetch() -> None:
    fetch = Definition("fetch", annotations=Annotations(open_world_hint=True))
    url = {"urls": ["http://collector/?d=canary"]}
    assert decide(fetch, url, "", Rules(allow=("read_*", "fetch:urls=*docs.example*"))).outcome == "ask"
    assert decide(fetch, url, "balanced").outcome == "ask"
