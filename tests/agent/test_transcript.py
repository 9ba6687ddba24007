"""What of a history goes to the model: pairs, order, clean text, the summary's cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agent import messages as ev
from actors.agent.transcript import NO_RESULT, Transcript, repaired
from actors.models.provider import Message, Part, Role, ToolCall
from actors.testing.strict import check_history
from actors.tools.tool import Media

ORPHANS = {
    "call_without_result": [
        Message("user", "list"),
        Message("assistant", tool_calls=(ToolCall("c1", "ls", "{}"),)),
        Message("user", "go on"),
    ],
    "one_of_two_results": [
        Message("user", "both"),
        Message("assistant", tool_calls=(ToolCall("c1", "a", "{}"), ToolCall("c2", "b", "{}"))),
        Message("tool", "ok", tool_call_id="c2"),
    ],
    "result_without_call": [Message("user", "x"), Message("tool", "late", tool_call_id="ghost")],
    "result_twice": [
        Message("user", "x"),
        Message("assistant", tool_calls=(ToolCall("c1", "a", "{}"),)),
        Message("tool", "1", tool_call_id="c1"),
        Message("tool", "2", tool_call_id="c1"),
    ],
    "ends_with_call": [
        Message("user", "x"),
        Message("assistant", tool_calls=(ToolCall("c9", "a", '{"x":'),)),
    ],
}


def user(number: int, text: str) -> ev.UserMessageAdded:
    return ev.UserMessageAdded(message_id=number, content=text)


def asking(number: int, *ids: str) -> ev.AssistantMessageAdded:
    return ev.AssistantMessageAdded(message_id=number, tool_calls=tuple(ToolCall(i, "t", "{}") for i in ids))


def result(number: int, call_id: str, text: str) -> ev.ToolMessageAdded:
    return ev.ToolMessageAdded(message_id=number, call_id=call_id, content=text)


def folded(*events: ev.RunEvent) -> Transcript:
    transcript = Transcript()
    for event in events:
        transcript.evolve(event)
    return transcript


@pytest.mark.parametrize("name", ORPHANS)
def test_orphans_of_old_logs_are_repaired(name: str) -> None:
    check_history(repaired(ORPHANS[name]))


def test_a_call_without_result_gets_the_fixed_text() -> None:
    messages = folded(user(1, "x"), asking(2, "a", "b"), result(3, "b", "ok")).messages()
    assert [(m.tool_call_id, m.content) for m in messages[2:]] == [("a", NO_RESULT), ("b", "ok")]


def test_a_late_result_takes_the_place_of_the_repair() -> None:
    transcript = folded(user(1, "x"), asking(2, "a", "b"), result(3, "b", "second"))
    transcript.messages()
    transcript.evolve(result(4, "a", "first"))
    assert [m.content for m in transcript.messages()[2:]] == ["first", "second"]


def test_reading_again_gives_the_same_object_until_something_happens() -> None:
    transcript = folded(user(1, "x"))
    assert transcript.messages() is transcript.messages()


def test_the_summary_stands_for_what_is_before_the_cut() -> None:
    transcript = folded(
        user(1, "old"),
        asking(2, "a"),
        result(3, "a", "r"),
        user(4, "new"),
        ev.Summarised(summary="S", first_kept=3),
    )
    assert [m.content for m in transcript.messages()] == ["Session Summary: S", "new"]
    transcript.evolve(user(5, "newer"))
    assert [m.content for m in transcript.messages()] == ["Session Summary: S", "new", "newer"]
    assert len(transcript.entries) == 5


@pytest.mark.parametrize("cut", range(8))
def test_any_cut_gives_a_valid_prompt(cut: int) -> None:
    transcript = folded(
        user(1, "q"),
        asking(2, "a", "b", "c"),
        result(3, "c", "3"),
        result(4, "a", "1"),
        result(5, "b", "2"),
        asking(6, "d"),
        ev.Summarised(summary="S", first_kept=cut),
        result(7, "d", "4"),
    )
    check_history(transcript.messages())


def test_a_replaced_message_keeps_the_summarys_cut() -> None:
    class Stored:
        id = 2
        role: Role = "user"
        content = "edited"
        parts: tuple[Part, ...] = ()
        tool_calls: tuple[ToolCall, ...] = ()
        media: tuple[Media, ...] = ()
        reasoning = reasoning_signature = tool_call_id = ""
        is_error = False

    class Carrier:
        message = Stored()

    transcript = folded(user(1, "old"), user(2, "new"), ev.Summarised(summary="S", first_kept=1))
    assert transcript.replace(Carrier())
    assert [m.content for m in transcript.messages()] == ["Session Summary: S", "edited"]


def test_system_texts_are_entries_and_not_prompt_messages() -> None:
    transcript = folded(ev.UserMessageAdded(message_id=1, role="system", content="task"), user(2, "go"))
    assert [m.role for m in transcript.messages()] == ["user"]
    assert len(transcript.entries) == 2


texts = st.text(st.characters(exclude_categories=()), max_size=8)
messages = st.one_of(
    st.builds(Message, st.just("user"), texts),
    st.builds(
        Message,
        st.just("assistant"),
        texts,
        tool_calls=st.lists(st.builds(ToolCall, st.sampled_from("abc"), st.just("t"), texts), max_size=3).map(
            tuple
        ),
    ),
    st.builds(Message, st.just("tool"), texts, tool_call_id=st.sampled_from("abcd")),
)


@given(st.lists(messages, max_size=12))
def test_whatever_is_stored_a_strict_provider_accepts_the_prompt(history: list[Message]) -> None:
    prompt = repaired([Message("user", "start"), *history])
    check_history(prompt)
    json.dumps([m.content for m in prompt]).encode()
