"""A session room without a runtime: memory journal, scripted model, one agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from actors.agent.team import AgentSpec, BoundModel, Team
from actors.agent.titles import generate_title
from actors.errors import Invalid, NotFound
from actors.journal.log import EventLog
from actors.journal.memory import open_memory
from actors.journal.owner import LocalOwner
from actors.journal.ring import Frame
from actors.journal.tail import Tails, open_follower
from actors.kernel import Address, Kind, Ref, System, open_system
from actors.models.provider import Message, ModelInfo, Provider
from actors.session import codec
from actors.session import messages as m
from actors.session.actor import SessionActor
from actors.session.create import create_session, stream_of
from actors.session.flusher import Flusher
from actors.session.internal import Command
from actors.session.queries import SessionRows
from actors.session.services import Bound, Owners, SessionServices
from actors.session.session import Session


@dataclass
class Binder:
    provider: Provider

    def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        if ref.endswith("/nothing"):
            raise Invalid(f"unknown model {ref}")
        provider, _, model = ref.partition("/")
        return BoundModel(
            provider=self.provider, info=ModelInfo(provider, model or "test", context_limit=100_000)
        )


@dataclass
class World:
    log: EventLog
    tails: Tails
    system: System
    services: SessionServices
    flusher: Flusher
    bound: Bound = field(default_factory=Bound)

    def session_ref(self, session_id: str) -> Ref[Command]:
        ref: Ref[Command] = self.system.ref(Address("session", session_id))
        return ref

    def follow(self, session_id: str, after: int | None):
        return open_follower(
            self.log,
            self.tails,
            stream_of(session_id),
            after or 0,
            lambda record: [Frame(i.seq, i.at, i.event) for i in codec.decode(record)],
        )

    async def create(self, **template) -> Session:
        view = await create_session(self.log, self.services.clock(), m.Template(**template))
        return Session(view.id, self, "test")

    async def events(self, session: Session) -> list[codec.Numbered]:
        found: list[codec.Numbered] = []
        for record in await self.log.read(stream_of(session.id), 0, 10_000):
            found += codec.decode(record)
        return found


@asynccontextmanager
async def open_world(
    provider: Provider,
    *,
    agents: Sequence[AgentSpec] = (AgentSpec(name="root", models=("test/model",)),),
    owners: Owners | None = None,
    log: EventLog | None = None,
    idle_after: float = 30.0,
) -> AsyncGenerator[World]:
    async with open_memory() as memory, trio.open_nursery() as nursery:
        if log is None:
            log = memory
            memory.register(SessionRows())
        tails, flusher, bound = Tails(), Flusher(), Bound()

        async def open_team(source: str, session: str) -> Team:
            del session
            if source != "test":
                raise NotFound(f"agent not found: {source}")
            return Team(agents, Binder(provider))

        def check_model(ref: str) -> None:
            Binder(provider).bind(agents[0], ref)

        services = SessionServices(
            log=log,
            tails=tails,
            owners=owners or LocalOwner(),
            clock=lambda: 1_700_000_000.0 + trio.current_time(),
            dirty=flusher.dirty,
            open_team=open_team,
            check_model=check_model,
            make_title=generate_title,
            data_dir=Path("/tmp"),
            default_dir=Path("/tmp"),
            bound=bound,
        )
        nursery.start_soon(flusher.run)
        kinds = {"session": Kind(lambda address: SessionActor(address.key, services), idle_after=idle_after)}
        async with open_system(kinds) as system:
            yield World(log, tails, system, services, flusher, bound)
        nursery.cancel_scope.cancel()


def user(text: str) -> Message:
    return Message("user", text)
