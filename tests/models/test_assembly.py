from __future__ import annotations

import itertools
from typing import Any

import pytest

from actors.models.assembly import Assembler
from actors.models.provider import Completed, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage


def assembler() -> Assembler:
    numbers = itertools.count(1)
    return Assembler(lambda: f"made_{next(numbers)}")


def calls(*fragments: dict[str, Any]) -> tuple[ToolCall, ...]:
    made = assembler()
    for fragment in fragments:
        made.add_call_fragment(**fragment)
    completed = made.complete("tool_calls", Usage())
    check_deltas(made, completed)
    return completed.message.tool_calls


def check_deltas(made: Assembler, completed: Completed) -> None:
    """What was streamed adds up to what was assembled, with id and name whole from the first delta on."""
    streamed: dict[int, ToolCall] = {}
    for event in made.take():
        if isinstance(event, ToolCallDelta):
            before = streamed.get(event.index, ToolCall(event.id, event.name, ""))
            assert (before.id, before.name) == (event.id, event.name)
            streamed[event.index] = ToolCall(event.id, event.name, before.arguments + event.arguments)
    assert {c.id: (c.name, c.arguments or "{}") for c in streamed.values()} == {
        c.id: (c.name, c.arguments) for c in completed.message.tool_calls
    }


def test_fragments_without_ids_go_to_their_index() -> None:
    assert calls(
        {"index": 0, "call_id": "a", "name": "tide"},
        {"index": 1, "call_id": "b", "name": "wind"},
        {"index": 0, "arguments": '{"p":'},
        {"index": 1, "arguments": '{"h":'},
        {"index": 0, "arguments": "1}"},
        {"index": 1, "arguments": "2}"},
    ) == (ToolCall("a", "tide", '{"p":1}'), ToolCall("b", "wind", '{"h":2}'))


def test_order_is_the_index_not_the_arrival() -> None:
    first, second = calls(
        {"index": 1, "call_id": "b", "name": "t", "arguments": "{}"},
        {"index": 0, "call_id": "a", "name": "t", "arguments": "{}"},
    )
    assert (first.id, second.id) == ("a", "b")


def test_same_index_with_different_ids_are_different_calls() -> None:
    made = calls(
        *({"index": 0, "call_id": f"c{n}", "name": "t", "arguments": f'{{"n":{n}}}'} for n in range(3))
    )
    assert [call.arguments for call in made] == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_whole_calls_without_ids_or_indexes_are_told_apart() -> None:
    made = calls(*({"name": "t", "arguments": f'{{"n":{n}}}'} for n in range(3)))
    assert [(call.id, call.arguments) for call in made] == [
        ("made_1", '{"n":0}'),
        ("made_2", '{"n":1}'),
        ("made_3", '{"n":2}'),
    ]


def test_different_tools_without_ids_or_indexes_or_arguments_are_told_apart() -> None:
    assert [call.name for call in calls({"name": "a"}, {"name": "b"})] == ["a", "b"]


def test_missing_index_continues_the_latest_call() -> None:
    made = calls({"call_id": "a", "name": "t", "arguments": '{"x"'}, {"arguments": ":1}"})
    assert made == (ToolCall("a", "t", '{"x":1}'),)


def test_id_repeated_on_every_fragment_is_one_call() -> None:
    piece = {"index": 0, "call_id": "a", "name": "t"}
    assert calls({**piece, "arguments": '{"x"'}, {**piece, "arguments": ":1}"}) == (
        ToolCall("a", "t", '{"x":1}'),
    )


def test_new_id_on_every_fragment_without_a_name_is_one_call() -> None:
    made = calls(
        {"index": 0, "call_id": "a", "name": "t", "arguments": "{"},
        {"index": 0, "call_id": "z", "arguments": "}"},
    )
    assert made == (ToolCall("a", "t", "{}"),)


def test_name_in_pieces_and_name_repeated_both_give_the_name() -> None:
    assert (
        calls({"index": 0, "call_id": "a", "name": "get_"}, {"index": 0, "name": "tide"})[0].name
        == "get_tide"
    )
    repeated = calls(
        {"index": 0, "call_id": "a", "name": "get_tide", "arguments": "{"},
        {"index": 0, "name": "get_tide", "arguments": '"a":{}'},
        {"index": 0, "name": "get_tide", "arguments": "}"},
    )
    assert repeated == (ToolCall("a", "get_tide", '{"a":{}}'),)


def test_arguments_may_be_an_object_and_may_come_twice() -> None:
    fragment = {"index": 0, "call_id": "a", "name": "t", "arguments": {"x": [1]}}
    assert calls(fragment, fragment) == (ToolCall("a", "t", '{"x":[1]}'),)


def test_same_id_for_two_calls_gives_the_second_a_new_one() -> None:
    made = calls(
        {"index": 0, "call_id": "c", "name": "t", "arguments": "{}"},
        {"index": 1, "call_id": "c", "name": "u", "arguments": "{}"},
    )
    assert [(call.id, call.name) for call in made] == [("c", "t"), ("made_1", "u")]


def test_arguments_before_the_name_wait_for_it() -> None:
    made = calls({"index": 0, "call_id": "a", "arguments": "{"}, {"index": 0, "name": "t", "arguments": "}"})
    assert made == (ToolCall("a", "t", "{}"),)


def test_call_without_arguments_gets_an_empty_object() -> None:
    assert calls({"index": 0, "call_id": "a", "name": "t", "arguments": ""}) == (ToolCall("a", "t", "{}"),)


def test_call_that_never_gets_a_name_is_an_error() -> None:
    made = assembler()
    made.add_call_fragment(index=0, arguments="{}")
    with pytest.raises(ValueError, match="name"):
        made.complete("tool_calls", Usage())


@pytest.mark.parametrize("word", ["stop", "end_turn", "", "function_call", "whatever", "tool_use"])
def test_calls_decide_the_finish_not_the_label(word: str) -> None:
    made = assembler()
    made.add_call_fragment(index=0, call_id="a", name="t", arguments="{}")
    assert made.complete(word, Usage()).finish == "tool_calls"


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("refusal", "refusal"),
    ],
)
def test_cut_off_calls_keep_the_label_that_stops_them(word: str, finish: str) -> None:
    made = assembler()
    made.add_call_fragment(index=0, call_id="a", name="t", arguments='{"half":')
    completed = made.complete(word, Usage())
    assert completed.finish == finish
    assert completed.message.tool_calls[0].arguments == '{"half":'


def test_split_surrogate_pair_is_joined_and_lone_ones_are_replaced() -> None:
    made = assembler()
    for piece in ("a\ud83d", "\ude00b", "\udc00", "c\0d", "\ud83d"):
        made.add_text(piece)
    made.add_reasoning("x\ud83d")
    completed = made.complete("stop", Usage())
    assert completed.message.content == "a\U0001f600b\ufffdcd\ufffd"
    assert completed.message.reasoning == "x\ufffd"
    events = made.take()
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == completed.message.content
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == completed.message.reasoning
