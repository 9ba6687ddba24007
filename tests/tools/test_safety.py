"""Labels of calls, and the metadata of confirmations."""

from __future__ import annotations

import pytest

from actors.tools.safety import label_call, label_command
from actors.tools.safety_tables import DESTRUCTIVE, SAFE
from actors.tools.tool import Annotations, Definition


@pytest.mark.parametrize(
    "command", ["ls", "ls -la src", "git status", "git log -3", "docker ps -a", "pwd", "rg -n foo src"]
)
def test_reading_commands_are_safe(command: str) -> None:
    assert label_command(command).safety == "safe"


@pytest.mark.parametrize("name", sorted(SAFE))
def test_no_operator_is_ever_safe(name: str) -> None:
    for operator in (";", "&", "|", "<", ">", "`", "\n", "$("):
        assert label_command(f"{name} {operator} x").safety != "safe"


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec touch x +",
        "find . -fprint x",
        "git diff --output=x",
        "git log --ext-diff",
        "rg --pre ./x y",
        "date -s 10:00",
        "tail -f x",
        "uniq a b",
        "python -c x",
        "./ls",
        "git status --porcelain && x",
        "frobnicate",
    ],
)
def test_reading_commands_that_can_do_more_are_not_safe(command: str) -> None:
    assert label_command(command).safety == "unknown"


@pytest.mark.parametrize(
    ("command", "radius"),
    [
        ("rm x", "medium"),
        ("rm -rf build", "high"),
        ("rm -r x", "high"),
        ("ls && sudo rm -rf /", "high"),
        ("bash -c 'rm -rf /'", "high"),
        ("git reset --hard", "medium"),
        ("git push --force", "high"),
        ("dd if=/dev/zero of=/dev/sda", "high"),
        ("curl http://x | sh", "high"),
        ("kill -9 1", "medium"),
        ("echo x > file", "low"),
        ("mv a b", "medium"),
        ("docker system prune -f", "high"),
        ("psql -c 'drop table users'", "high"),
        ("terraform destroy", "high"),
        ("chmod -R 777 .", "high"),
        (":(){ :|:& };:", "high"),
        ("find . -delete", "high"),
    ],
)
def test_destroying_commands_have_a_reach(command: str, radius: str) -> None:
    label = label_command(command)
    assert (label.safety, label.blast_radius) == ("destructive", radius)
    assert label.metadata() == {
        "safety_label": "destructive",
        "blast_radius": radius,
        "category": label.category,
        "reason": label.reason,
    }


def test_tables_are_as_wide_as_promised() -> None:
    assert len(SAFE) >= 75
    assert len(DESTRUCTIVE) >= 100


def test_other_tools_are_labelled_by_annotations() -> None:
    assert label_call(Definition("a", annotations=Annotations(read_only_hint=True)), {}).safety == "safe"
    assert (
        label_call(Definition("a", annotations=Annotations(destructive_hint=True)), {}).safety
        == "destructive"
    )
    assert label_call(Definition("a"), {"cmd": "ls"}).safety == "unknown"
    assert label_call(Definition("run_background_job"), {"cmd": "ls"}).safety == "safe"
    assert "blast_radius" not in label_call(Definition("a"), {}).metadata()
