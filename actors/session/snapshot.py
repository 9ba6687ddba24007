"""A session's state as bytes, so that waking a long conversation does not read its whole stream.

A cache: without it, or written by another version, the state is folded from the first event, and is the same.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec
from msgspec import Struct

from actors.journal.snapshot import Cadence
from actors.session import messages as m
from actors.session.state import Queued, SessionState, SubSession

FORMAT = 1
CADENCE = Cadence()

_PLAIN = (
    "exists",
    "seq",
    "created_at",
    "template",
    "title",
    "safety_policy",
    "safety_chosen",
    "prior_policy",
    "permissions",
    "model_overrides",
    "custom_models",
    "starred",
    "input_tokens",
    "output_tokens",
    "cost",
    "source",
    "agent",
    "messages",
    "last_message_id",
    "subs",
    "steering",
    "follow_ups",
)


class Cut(Struct, frozen=True):
    """What a transcript knows beside its messages."""

    summary: str
    first_kept: int
    last_tokens: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """The fields of an idle :class:`~actors.session.state.SessionState`."""

    format: int
    exists: bool
    seq: int
    created_at: float
    template: m.Template
    title: str
    safety_policy: m.SafetyPolicy
    safety_chosen: bool
    prior_policy: m.SafetyPolicy
    permissions: m.PermissionRules | None
    model_overrides: dict[str, str]
    custom_models: list[str]
    starred: bool
    input_tokens: int
    output_tokens: int
    cost: float
    source: str
    agent: str
    messages: list[m.HistoryMessage]
    last_message_id: int
    subs: dict[str, SubSession]
    steering: list[Queued]
    follow_ups: list[Queued]
    keys: list[str]
    cuts: dict[str, Cut]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode(state: SessionState) -> bytes:
    """Return the state of a session without an open run."""
    assert state.run is None, "only an idle session is worth keeping"
    assert not len(state.open_runs), "only an idle session is worth keeping"
    plain = {name: getattr(state, name) for name in _PLAIN}
    cuts = {name: Cut(t.summary, t.first_kept, t.last_tokens) for name, t in state.transcripts.items()}
    return _encoder.encode(Snapshot(format=FORMAT, keys=list(state.keys), cuts=cuts, **plain))


def decode(session_id: str, data: bytes) -> SessionState | None:
    """Return the state; ``None`` when the bytes are of another version and the log must be folded instead."""
    try:
        snapshot = _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
    if snapshot.format != FORMAT:
        return None
    state = SessionState(session_id, **{name: getattr(snapshot, name) for name in _PLAIN})
    state.keys = OrderedDict.fromkeys(snapshot.keys)
    for message in state.messages:
        event = m.MessageAppended(agent=message.agent, session=message.session, message=message)
        state.transcript(message.session).append(event)
    for name, cut in snapshot.cuts.items():
        state.transcript(name).restore(cut.summary, cut.first_kept, cut.last_tokens)
    return state
