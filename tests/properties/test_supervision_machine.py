"""An actor under a random script of asks, crashes, refusals, stops, cancellations and pauses.

Whatever happens: every ask is settled exactly once (K4), refusals and successes never count as crashes (K6), messages
come in order (K2), and the restart budget decides when the actor ends.
"""

from __future__ import annotations

from typing import Any, Literal

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.errors import Conflict
from actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStopped,
    Address,
    Context,
    Kind,
    Request,
    RestartPolicy,
    open_system,
)
from actors.kernel.supervision import Escalate, Restart

Step = Literal["ok", "refuse", "crash", "leave", "stop", "pause", "passivate"]
POLICY = RestartPolicy(max_restarts=2, within=10.0, backoff=0.5, backoff_max=2.0)
SCRIPTS = st.lists(
    st.sampled_from(["ok", "refuse", "crash", "leave", "stop", "pause", "passivate"]), max_size=30
)


class Do(Request[int], frozen=True):
    what: str
    number: int


class Subject(Actor[Any]):
    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        self.seen.append(message.number)
        await trio.lowlevel.checkpoint()
        match message.what:
            case "crash":
                raise RuntimeError
            case "refuse":
                raise Conflict("no")
            case "passivate":
                ctx.passivate()
            case _:
                pass
        return message.number


async def play(script: list[str]) -> None:
    seen: list[int] = []
    outcomes: dict[int, str] = {}
    address = Address("subject", "1")
    async with open_system({"subject": Kind(lambda _: Subject(seen), policy=POLICY)}) as system:
        ref = system.ref(address)
        async with trio.open_nursery() as nursery:

            async def ask(number: int, what: str) -> None:
                outcome = "left"
                try:
                    with trio.move_on_after(0 if what == "leave" else 1000) as scope:
                        assert await ref.ask(Do(what, number)) == number
                        outcome = "ok"
                    assert not scope.cancelled_caught or what == "leave", "an ask was never settled"
                except Conflict:
                    outcome = "refuse"
                except ActorCrashed:
                    outcome = "crash"
                except ActorStopped:
                    outcome = "stopped"
                assert number not in outcomes
                outcomes[number] = outcome

            for number, what in enumerate(script):
                if what == "pause":
                    await trio.sleep(20)
                elif what == "stop":
                    nursery.start_soon(ref.stop, 1)
                else:
                    nursery.start_soon(ask, number, what)
                await trio.testing.wait_all_tasks_blocked()
        asks = {number: what for number, what in enumerate(script) if what not in {"pause", "stop"}}
        assert outcomes.keys() == asks.keys()
        for number, outcome in outcomes.items():
            if outcome in {"ok", "refuse"}:
                expected = "refuse" if asks[number] == "refuse" else "ok"
                assert outcome == expected
        crashes = sum(asks[number] == "crash" for number in seen)
        assert system.statistics().crashes == crashes, "only a bug is a crash (K6)"
        assert seen == sorted(seen), "one at a time and in order (K1, K2)"
        assert len(seen) == len(set(seen)), "nothing is handled twice"
        assert system.statistics().dead_letters == 0


@given(script=SCRIPTS)
@settings(max_examples=80, deadline=None)
def test_k4_every_ask_is_settled_whatever_happens_to_the_actor(script: list[str]) -> None:
    trio.run(play, script, clock=trio.testing.MockClock(autojump_threshold=0))


@given(
    gaps=st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=20),
    max_restarts=st.integers(min_value=0, max_value=5),
    within=st.floats(min_value=0.1, max_value=50),
)
def test_the_policy_keeps_its_budget(gaps: list[float], max_restarts: int, within: float) -> None:
    policy = RestartPolicy(max_restarts=max_restarts, within=within, backoff=0.5, backoff_max=4.0)
    crashes: list[float] = []
    for gap in gaps:
        now = (crashes[-1] if crashes else 0.0) + gap
        crashes.append(now)
        recent = [crash for crash in crashes if now - crash < within]
        match policy.decide(crashes, now):
            case Restart(delay):
                assert len(recent) <= max_restarts
                assert 0 < delay <= policy.backoff_max
            case Escalate(count):
                assert count == len(recent) > max_restarts
