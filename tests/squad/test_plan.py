"""Plans as graphs: layers, cycles, and the repair of what planners draft."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Invalid
from actors.squad.plan import Draft, fallback, find_agent, find_cycle, layers, reaches, repair
from actors.squad.plantext import read_drafts
from tests.squad.kit import squad

TEAM = squad(Path("/work"), "writer", "reader")
BAD_GRAPHS = {
    "self_loop": [("t1", "writer", ["t1"])],
    "two_cycle": [("t1", "writer", ["t2"]), ("t2", "writer", ["t1"])],
    "late_cycle": [
        ("ok", "writer", []),
        ("n0", "writer", ["n1", "ok"]),
        *((f"n{n}", "writer", [f"n{n + 1}"]) for n in range(1, 11)),
        ("n11", "writer", ["n0"]),
    ],
    "missing_dep": [("t1", "writer", ["t0"])],
    "unknown_agent": [("t1", "senior-wizard", [])],
}


def drafts_of(rows: list[tuple[str, str, list[str]]]) -> list[Draft]:
    return [Draft(id=name, title=name, agent=agent, depends_on=tuple(needs)) for name, agent, needs in rows]


def repaired(rows: list[tuple[str, str, list[str]]], limit: int = 20):
    numbers = count(1)
    return repair(drafts_of(rows), TEAM, limit=limit, new_id=lambda: f"id-{next(numbers)}")


graphs = st.integers(1, 12).flatmap(
    lambda size: st.fixed_dictionaries(
        {str(n): st.lists(st.integers(0, size - 1).map(str), max_size=4) for n in range(size)}
    )
)


def test_a_diamond_has_three_layers() -> None:
    edges = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    assert layers(edges) == (("a",), ("b", "c"), ("d",))


def test_an_empty_graph_has_no_layers() -> None:
    assert layers({}) == ()


def test_a_long_chain_needs_no_deep_recursion() -> None:
    edges = {str(n): [str(n - 1)] if n else [] for n in range(5000)}
    assert len(layers(edges)) == 5000
    assert find_cycle(edges) == []


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({"a": ["a"]}, "in a circle: a -> a"),
        ({"a": ["b"], "b": ["a"]}, "in a circle: a -> b -> a"),
        ({"ok": [], "a": ["ok", "b"], "b": ["c"], "c": ["a"]}, "in a circle: a -> b -> c -> a"),
        ({"a": ["gone"]}, "'a' depends on 'gone', which is not a task"),
    ],
)
def test_an_unsound_graph_is_refused_with_the_tasks_named(
    edges: Mapping[str, list[str]], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        layers(edges)


@given(graphs)
def test_layers_put_each_task_once_and_as_early_as_it_can_be(edges: dict[str, list[str]]) -> None:
    if cycle := find_cycle(edges):
        assert cycle[0] == cycle[-1]
        assert all(after in edges[before] for before, after in pairwise(cycle))
        with pytest.raises(Invalid):
            layers(edges)
        return
    found = layers(edges)
    place = {task: index for index, wave in enumerate(found) for task in wave}
    assert sorted(place) == sorted(edges)
    for task, needs in edges.items():
        assert place[task] == max((place[need] + 1 for need in needs), default=0)


@given(graphs)
def test_reaching_agrees_with_cycles(edges: dict[str, list[str]]) -> None:
    circular = any(reaches(edges, need, task) for task, needs in edges.items() for need in needs)
    assert circular == bool(find_cycle(edges))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t1", "t2", "t3", "1", ""]),
            st.sampled_from(["writer", "reader", "pia", "nobody", ""]),
            st.lists(st.sampled_from(["t1", "t2", "t3", "1", "gone"]), max_size=4),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_was_drafted_the_repaired_plan_is_sound(rows: list[tuple[str, str, list[str]]]) -> None:
    found = repaired(rows, limit=10)
    members = {agent.id for agent in TEAM.agents}
    assert 1 <= len(found.tasks) <= 10
    assert all(task.assigned_to in members and task.title for task in found.tasks)
    assert sum(map(len, layers({task.id: task.depends_on for task in found.tasks}))) == len(found.tasks)


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_a_bad_graph_is_repaired_with_a_message(name: str) -> None:
    found = repaired(BAD_GRAPHS[name])
    assert len(found.notes) == 1
    assert layers({task.id: task.depends_on for task in found.tasks})


def test_of_a_circle_the_later_edge_is_dropped() -> None:
    found = repaired(BAD_GRAPHS["two_cycle"])
    first, second = found.tasks
    assert first.depends_on == (second.id,)
    assert second.depends_on == ()


def test_an_invented_agent_is_replaced_by_the_first_who_does_not_plan() -> None:
    found = repaired(BAD_GRAPHS["unknown_agent"])
    assert found.tasks[0].assigned_to == "a-writer"
    assert "senior-wizard" in found.notes[0]


def test_a_sound_plan_is_not_touched() -> None:
    found = repaired([("a", "writer", []), ("b", "a-reader", ["a"]), ("c", "WRITER", ["a", "b"])])
    assert found.notes == ()
    assert [task.depends_on for task in found.tasks] == [(), ("id-1",), ("id-1", "id-2")]
    assert [task.assigned_to for task in found.tasks] == ["a-writer", "a-reader", "a-writer"]


def test_a_plan_of_thousands_is_cut_to_the_limit_and_says_so() -> None:
    found = repaired([(f"t{n}", "writer", []) for n in range(5000)])
    assert len(found.tasks) == 20
    assert "5000 tasks" in found.notes[0]


def test_the_fallback_gives_the_request_to_everyone_but_the_planner() -> None:
    tasks = fallback("x" * 300, TEAM, limit=20, new_id=count().__next__().__str__)
    assert [task.assigned_to for task in tasks] == ["a-writer", "a-reader"]
    assert tasks[0].title == "writer: " + "x" * 100


def test_a_lone_planner_gets_the_fallback_itself() -> None:
    lone = msgspec.structs.replace(TEAM, agents=TEAM.agents[:1])
    (task,) = fallback("do it", lone, limit=20, new_id=lambda: "id")
    assert task.assigned_to == "a-pia"


def test_an_agent_is_found_by_id_before_name_before_role() -> None:
    assert find_agent("a-reader", TEAM) is TEAM.agents[2]
    assert find_agent(" Reader ", TEAM) is TEAM.agents[2]
    assert find_agent("developer", TEAM) is TEAM.agents[1]
    assert find_agent("", TEAM) is None


# --- reading --------------------------------------------------------------------------------------------------------

PLAN = '{"tasks": [{"id": "a", "title": "one"}, {"id": "b", "title": "two", "depends_on": ["a"]}]}'


@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        f"```json\n{PLAN}\n```",
        f"Sure, here is how I would split it:\n\n```\n{PLAN}\n```\nShall I start?",
        f'{PLAN} An example of a reply would be `{{"tasks": []}}`.',
        f"First {{not this}} and [1] then {PLAN}",
        f'```json\n{{"note": "thinking"}}\n```\n```json\n{PLAN}\n```',
        PLAN.replace("]}]}", "],},]}"),
        PLAN.replace('"tasks":', '// the plan\n"tasks": /* all of it */'),
        f'{{"plan": {PLAN}}}',
        PLAN[len('{"tasks": ') : -1],
    ],
    ids=[
        "bare",
        "fenced",
        "prose",
        "example",
        "braces",
        "two-blocks",
        "commas",
        "comments",
        "nested",
        "list",
    ],
)
def test_a_plan_is_read_whatever_is_around_it(text: str) -> None:
    found = read_drafts(text)
    assert [(draft.id, draft.title, draft.depends_on) for draft in found] == [
        ("a", "one", ()),
        ("b", "two", ("a",)),
    ]


def test_the_fenced_sample_is_read() -> None:
    text = """Sure, here is how I would split the work.

```json
{"tasks": [
  {"id": "collect", "agent": "reader", "goal": "gather the notes", "depends_on": []},
  {"id": "draft", "agent": "writer", "goal": "write {one} page", "depends_on": ["collect"]},
]}
```

An example of a reply would be `{"tasks": []}`. Shall I start?"""
    collect, draft = read_drafts(text)
    assert (collect.agent, draft.description, draft.depends_on) == (
        "reader",
        "write {one} page",
        ("collect",),
    )


def test_numbers_as_ids_and_a_lone_text_as_dependencies_are_taken() -> None:
    found = read_drafts('[{"id": 1, "goal": "a"}, {"id": 2, "goal": "b", "dependsOn": "1"}]')
    assert [(draft.id, draft.depends_on) for draft in found] == [("1", ()), ("2", ("1",))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "I would just do it.",
        '{"tasks": 3, "waves": [["a"]]}',
        '{"tasks": [1, 2]}',
        "{" * 5000,
    ],
)
def test_where_there_is_no_task_none_is_read(text: str) -> None:
    assert read_drafts(text) == []


def test_commas_and_slashes_inside_texts_stay() -> None:
    (found,) = read_drafts('[{"title": "see http://x.y/z,] and \\"quoted, }\\"",}]')
    assert found.title == 'see http://x.y/z,] and "quoted, }"'


@given(st.text(alphabet='{}[],:"\\ab/*\n ', max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert isinstance(read_drafts(text), list)
