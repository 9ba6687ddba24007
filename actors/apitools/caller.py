"""Making the calls of stored tools: waited for or in the background, bounded, and recorded either way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec import Struct, structs

from actors.apitools.history import History
from actors.apitools.messages import CallRecord, Performed, RecordedRequest, RecordedResponse
from actors.ids import new_id
from actors.kernel import KillSwitch
from actors.tools.http_api.answer import decode_text, read_body, render
from actors.tools.http_api.call import ApiCall, BadArguments, BuiltRequest, Outcome
from actors.tools.http_api.executor import Executor, rejection
from actors.tools.http_api.redact import redact, redact_headers
from actors.tools.http_api.request import build_request

JSON = Any
BODY_KEPT = 16 * 1024
"""Bytes of a body that a record keeps."""
CLOSE_SECONDS = 5.0
"""How long a closing runtime waits for background calls."""
SENT = '{"status":"sent"}'


class Bounds(Struct, frozen=True):
    """How many background calls may be in flight, and how many bytes their bodies may have together."""

    session: int = 10
    server: int = 1000
    body_bytes: int = 64 * 1024 * 1024


class Caller:
    """Makes calls. Made by :func:`open_caller`.

    Args:
        executor: Sends them.
        history: Where they are recorded.
        nursery: Where background calls run: it outlives turns and sessions' actors.
        clock: Seconds since the epoch.
        bounds: For background calls.
    """

    def __init__(
        self,
        executor: Executor,
        history: History,
        nursery: trio.Nursery,
        clock: Callable[[], float],
        bounds: Bounds,
    ) -> None:
        self._executor = executor
        self._history = history
        self._nursery = nursery
        self._clock = clock
        self._bounds = bounds
        self._flying: Counter[str] = Counter()
        self._bytes = 0
        self._landed = trio.Event()
        self.switch = KillSwitch()
        """Cancels every background call at once, and those that begin while it is tripped."""

    @property
    def in_flight(self) -> int:
        """How many background calls are going on."""
        return self._flying.total()

    async def perform(
        self,
        tool_id: str,
        call: ApiCall,
        arguments: Mapping[str, JSON],
        variables: Mapping[str, JSON],
        *,
        session_id: str,
        tool_call_id: str = "",
        node_id: str = "",
    ) -> Performed:
        """Make a call for a session.

        A ``wait`` call returns with its answer. A ``fire_and_forget`` call returns as soon as it is handed over;
        what comes of it is in the history only. Nothing here raises for a failed call.

        Cancellation: a ``wait`` call's connection is closed and its record says cancelled.
        """
        record = CallRecord(
            id=new_id("call"),
            session_id=session_id,
            tool_id=tool_id,
            tool_name=call.name,
            tool_call_id=tool_call_id,
            node_id=node_id,
            response_mode=call.response_mode,
            state="pending",
            started_at=self._now(),
            delivered_to_model=call.response_mode == "wait",
        )
        try:
            request = build_request(call, arguments, variables)
        except BadArguments as error:
            return self._rejected(record, rejection(error), ())
        record = structs.replace(record, request=_recorded_request(request))
        if refusal := self._executor.refusal(request):
            return self._rejected(record, refusal, request.secrets)
        if call.response_mode == "fire_and_forget":
            return self._fire(record, request, call.seconds)
        self._history.note(record)
        return await self._send(record, request, call.seconds)

    async def try_out(
        self, call: ApiCall, arguments: Mapping[str, JSON], variables: Mapping[str, JSON]
    ) -> Performed:
        """Make a call, wait for its answer whatever its mode, and record nothing."""
        record = CallRecord(
            id="", session_id="", tool_id="", tool_name=call.name, state="pending", started_at=self._now()
        )
        try:
            request = build_request(call, arguments, variables)
        except BadArguments as error:
            return _performed(self._ended(record, rejection(error), ()), rejection(error), ())
        record = structs.replace(record, request=_recorded_request(request))
        outcome = self._executor.refusal(request) or await self._executor.send(request, call.seconds)
        return _performed(self._ended(record, outcome, request.secrets), outcome, request.secrets)

    async def drain(self) -> None:
        """Wait until no background call is going on."""
        while self.in_flight:
            await self._landed.wait()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _fire(self, record: CallRecord, request: BuiltRequest, seconds: float) -> Performed:
        size = len(request.body or b"")
        session = record.session_id
        if (
            self._flying[session] >= self._bounds.session
            or self.in_flight >= self._bounds.server
            or self._bytes + size > self._bounds.body_bytes
        ):
            busy = Outcome(
                state="rejected", kind="busy", message="too many calls are still going on; nothing was sent"
            )
            return self._rejected(record, busy, request.secrets)
        self._flying[session] += 1
        self._bytes += size
        self._history.note(record)
        self._nursery.start_soon(self._fly, record, request, seconds, name=f"call of {record.tool_name}")
        return Performed(text=SENT, is_error=False, record=record)

    async def _fly(self, record: CallRecord, request: BuiltRequest, seconds: float) -> None:
        try:
            with self.switch.scope():
                await self._send(record, request, seconds)
        finally:
            self._flying[record.session_id] -= 1
            if not self._flying[record.session_id]:
                del self._flying[record.session_id]
            self._bytes -= len(request.body or b"")
            self._landed.set()
            self._landed = trio.Event()

    async def _send(self, record: CallRecord, request: BuiltRequest, seconds: float) -> Performed:
        outcome = Outcome(state="cancelled", kind="cancelled", message="the call was cancelled")
        try:
            outcome = await self._executor.send(request, seconds)
        finally:
            ended = self._ended(record, outcome, request.secrets)
            self._history.note(ended)
        return _performed(ended, outcome, request.secrets)

    def _rejected(self, record: CallRecord, outcome: Outcome, secrets: tuple[str, ...]) -> Performed:
        ended = structs.replace(self._ended(record, outcome, secrets), delivered_to_model=True)
        self._history.note(ended)
        return _performed(ended, outcome, secrets)

    def _ended(self, record: CallRecord, outcome: Outcome, secrets: tuple[str, ...]) -> CallRecord:
        now = self._now()
        return structs.replace(
            record,
            state=outcome.state,
            response=_recorded_response(outcome, secrets) if outcome.status else None,
            error_kind=outcome.kind,
            error_message=redact(outcome.message, secrets),
            finished_at=now,
            duration_ms=max(0, now - record.started_at),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _performed(record: CallRecord, outcome: Outcome, secrets: tuple[str, ...]) -> Performed:
    result = render(outcome, secrets)
    body: JSON = None
    if not outcome.kind:
        body, notes = read_body(outcome)
        if notes.get("parse_error") or notes.get("truncated"):
            body = None
    return Performed(text=result.output, is_error=result.is_error, record=record, body=body)


def _recorded_request(request: BuiltRequest) -> RecordedRequest:
    body = (
        None if request.body is None else _kept(request.body.decode("utf-8", "replace"), request.secrets)[0]
    )
    return RecordedRequest(
        request.method,
        redact(request.url, request.secrets),
        redact_headers(request.headers, request.secrets),
        body,
    )


def _recorded_response(outcome: Outcome, secrets: tuple[str, ...]) -> RecordedResponse:
    body, notes = read_body(outcome)
    binary = isinstance(body, str) and body.startswith("<binary ")
    text, cut = _kept(str(body) if binary else decode_text(outcome), secrets)
    truncated = cut or bool(notes.get("truncated"))
    return RecordedResponse(outcome.status, redact_headers(outcome.headers, secrets), text or None, truncated)


def _kept(text: str, secrets: tuple[str, ...]) -> tuple[str, bool]:
    """Return the beginning of a text that a record keeps, and whether something was left out."""
    clean = redact(text, secrets)
    data = clean.encode("utf-8", "replace")
    if len(data) <= BODY_KEPT:
        return clean, False
    return data[:BODY_KEPT].decode("utf-8", "ignore"), True


@asynccontextmanager
async def open_caller(
    executor: Executor, history: History, clock: Callable[[], float], bounds: Bounds | None = None
) -> AsyncGenerator[Caller]:
    """Open a caller for the block; at its end background calls get five seconds, then they are cancelled."""
    async with trio.open_nursery() as nursery:
        caller = Caller(executor, history, nursery, clock, bounds or Bounds())
        try:
            yield caller
        finally:
            # Notifications that are on their way should arrive although the server stops.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                await caller.drain()
            nursery.cancel_scope.cancel()
