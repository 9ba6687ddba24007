"""New sessions: created and forked without an actor, which the first command activates.

A stream that does not exist has no owner, so the fence alone (``expected`` 0) decides who creates it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from actors.errors import Conflict, Invalid
from actors.ids import new_uuid
from actors.journal.log import Append, EventLog, SequenceConflict
from actors.session import codec
from actors.session.codec import Numbered
from actors.session.messages import HistoryMessage, SessionCreated, SessionView, SubSessionView, Template
from actors.session.state import SessionState

PREFIX = "session/"
_FORK = re.compile(r"^(?P<base>.*) \(fork (?P<number>\d+)\)$", re.DOTALL)


def stream_of(session_id: str) -> str:
    """Return the name of the session's stream."""
    return PREFIX + session_id


async def create_session(
    log: EventLog,
    now: float,
    template: Template,
    *,
    session_id: str = "",
    forked_from: str = "",
    history: Sequence[HistoryMessage] = (),
    subs: Sequence[SubSessionView] = (),
) -> SessionView:
    """Create a session and return it.

    Args:
        log: The journal.
        now: Seconds since the epoch.
        template: What it starts with; paths are checked already.
        session_id: Its id; a new UUID when empty.
        forked_from: The parent's id, for a fork.
        history: Messages it begins with.
        subs: The sub-sessions that some of them belong to.

    Raises:
        Conflict: The id is taken.
        JournalUnavailable: The disk failed; there is no session.
    """
    session_id = session_id or new_uuid()
    event = SessionCreated(
        template=template, forked_from=forked_from, history=tuple(history), subs=tuple(subs)
    )
    created = Numbered(1, now, event)
    try:
        await log.append(
            Append(stream=stream_of(session_id), expected=0, records=tuple(codec.encode([created])))
        )
    except SequenceConflict as error:
        raise Conflict(f"session {session_id} already exists") from error
    state = SessionState(session_id)
    state.evolve(created)
    return state.view(streaming=False, bound=False)


def checked_working_dir(raw: str, root: str, current: Path) -> str:
    """Return the absolute directory a session's tools will use; empty for none (sessions contract 1.4).

    Args:
        raw: As the client sent it.
        root: The permitted root, or empty for any directory.
        current: What a relative path starts from.

    Raises:
        Invalid: It climbs, does not exist, is no directory, or lies outside the root after symlinks are followed.
    """
    text = raw.strip()
    if not text:
        return ""
    if ".." in re.split(r"[/\\]", text) or "\0" in text:
        raise Invalid(f"invalid working directory: {text!r} must not contain '..'")
    path = Path(os.path.normpath(current / Path(text).expanduser()))
    if not path.exists():
        raise Invalid(f"invalid working directory: {text!r} does not exist")
    if not path.is_dir():
        raise Invalid(f"invalid working directory: {text!r} is not a directory")
    if not root:
        return str(path)
    permitted, real = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if real != permitted and permitted not in real.parents:
        raise Invalid(f'invalid working directory: "{text}" is outside the permitted root "{root}"')
    return str(real)


def fork_prefix(
    view: SessionView, user_message_index: int
) -> tuple[list[HistoryMessage], list[SubSessionView]]:
    """Return the messages of ``view`` before its n-th user message, and their sub-sessions under new ids (1.6).

    Raises:
        Invalid: There is no such message, or it lies inside a sub-session.
    """
    ordinals = [index for index, message in enumerate(view.messages) if message.role == "user"]
    if not 0 <= user_message_index < len(ordinals):
        raise Invalid(f"fork user-message index out of range: {user_message_index}")
    boundary = ordinals[user_message_index]
    if view.messages[boundary].session:
        raise Invalid(f"fork user-message index falls inside a sub-session at ordinal {user_message_index}")
    kept = view.messages[:boundary]
    parents = {sub.id: sub.parent for sub in view.subs}
    renamed = {"": ""}
    for message in kept:
        session = message.session
        while session not in renamed:
            renamed[session] = new_uuid()
            session = parents.get(session, "")
    return (
        [msgspec.structs.replace(message, session=renamed[message.session]) for message in kept],
        [
            msgspec.structs.replace(sub, id=renamed[sub.id], parent=renamed[sub.parent])
            for sub in view.subs
            if sub.id in renamed
        ],
    )


def fork_base(title: str) -> str:
    """Return a title without its `` (fork N)``."""
    found = _FORK.match(title)
    return found["base"] if found else title


def fork_title(title: str, existing: Iterable[str]) -> str:
    """Return the title of a new fork: one above the highest number among the stored forks of the same base."""
    if not title:
        return ""
    base = fork_base(title)
    highest = 0
    for other in existing:
        found = _FORK.match(other)
        if found and found["base"] == base:
            highest = max(highest, int(found["number"]))
    return f"{base} (fork {highest + 1})"
