"""The squads of a runtime: joins their stored resources and their engine, which know each other by protocols alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from actors.journal.log import EventLog
from actors.kernel import Kind
from actors.models.catalog import Models
from actors.session.services import Owners
from actors.settings import Settings
from actors.squad.actor import ExecutionActor
from actors.squad.bus import Bus
from actors.squad.engine import SquadEngine
from actors.squad.ledger import Caps
from actors.squad.lineup import Bench
from actors.squad.service import Squads
from actors.squad.services import ExecutionServices


def build_squads(
    settings: Settings,
    journal: EventLog,
    models: Models,
    owners: Owners,
    clock: Callable[[], float],
) -> tuple[Squads, SquadEngine]:
    """Return the stored resources and the engine, joined; the caller sets the engine's ``system`` and runs both."""
    store = Squads(
        settings.data_dir, models, default_model=settings.default_model, version=_version(), clock=clock
    )
    engine = SquadEngine(store, Bus(), live_limit=settings.squad_executions)
    store.live = engine
    engine.services = ExecutionServices(
        log=journal,
        owners=owners,
        clock=clock,
        store=store,
        bench=Bench(models=models, env=settings.environment, default_model=settings.default_model),
        publish=engine.show,
        switch=engine.switch,
        history_lock=engine.history_lock,
        caps=Caps(settings.ledger_events, settings.ledger_bytes),
        data_dir=settings.data_dir,
        env=settings.environment,
    )
    return store, engine


def execution_kind(engine: SquadEngine, idle_after: float) -> Kind:
    """Return how executions become actors."""
    return Kind(lambda address: ExecutionActor(address.key, engine.services), idle_after=idle_after)


def _version() -> str:
    try:
        return version("greenroom")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return ""
