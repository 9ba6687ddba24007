"""The pattern language of permission rules."""

from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.tools import patterns


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "expected"),
    [
        ("shell", "shell", {}, True),
        ("shell", "shell2", {}, False),
        ("SHELL", "shell", {}, True),
        ("read_*", "read_file", {"path": "x"}, True),
        ("read_*", "thread_read_x", {}, False),
        ("*", "anything", {}, True),
        ("shell:cmd=git status*", "shell", {"cmd": "git status -s"}, True),
        ("shell:cmd=git status*", "shell", {"cmd": "GIT STATUS\nrm x"}, True),
        ("shell:cmd=git status*", "shell", {}, False),
        ("shell:cmd=ls:cwd=/tmp/*", "shell", {"cmd": "ls", "cwd": "/tmp/a/b"}, True),
        ("shell:cmd=ls:cwd=/tmp/*", "shell", {"cmd": "ls", "cwd": "/home"}, False),
        ("shell:cmd=ls:cwd=/tmp/*", "shell", {"cmd": "ls"}, False),
        ("fetch:url=http://a:80/*", "fetch", {"url": "http://a:80/x"}, True),
        ("mcp:thing", "mcp:thing", {}, True),
        ("f:n=5", "f", {"n": 5}, True),
        ("f:b=true", "f", {"b": True}, True),
        ("f:l=*secret*", "f", {"l": ["a", "secret.txt"]}, True),
        ("f:x=null", "f", {"x": None}, True),
        ("f:p=a?c", "f", {"p": "a\nc"}, True),
        ("f:p=[a-c]x", "f", {"p": "bx"}, True),
        ("f:p=[!a-c]x", "f", {"p": "bx"}, False),
        (r"f:p=a\*", "f", {"p": "a*"}, True),
        (r"f:p=a\*", "f", {"p": "ab"}, False),
        ("f:p=[x", "f", {"p": "[x"}, True),
        ("f:p=", "f", {"p": ""}, True),
        ("f:p=", "f", {"p": "x"}, False),
    ],
)
def test_rule_matches_as_the_contract_says(
    rule: str, tool: str, arguments: dict[str, object], expected: bool
) -> None:
    assert patterns.matches_call(rule, tool, arguments) is expected


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=8))
def test_glob_agrees_with_fnmatch_on_what_both_know(glob: str, text: str) -> None:
    assert patterns.matches(glob, text) is fnmatch.fnmatchcase(text, glob)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_a_usable_glob(glob: str, text: str) -> None:
    assert patterns.matches(glob, text) in {True, False}
    assert patterns.matches_words(glob, text) in {True, False}


@given(st.text(alphabet="ab *", min_size=1, max_size=8), st.text(alphabet="ab ", max_size=8))
def test_word_matching_is_never_wider(glob: str, text: str) -> None:
    if patterns.matches_words(glob, text):
        assert patterns.matches(glob, text)


@pytest.mark.parametrize("glob", ["git status*", "git status**", "git status***", "g*t status*"])
def test_final_star_after_a_word_needs_a_blank(glob: str) -> None:
    assert patterns.matches_words(glob, "git status")
    assert patterns.matches_words(glob, "git status -s")
    assert not patterns.matches_words(glob, "git statusx")


def test_final_star_after_a_slash_goes_on_freely() -> None:
    assert patterns.matches_words("cat src/*", "cat src/a.py")


def test_many_stars_do_not_make_matching_slow() -> None:
    began = time.perf_counter()
    assert not patterns.matches("*a" * 40 + "b", "a" * 5000)
    assert not patterns.matches_words("*a" * 40 + "b*", "a" * 5000)
    assert time.perf_counter() - began < 2
