"""The squads' limits come from the environment, too."""

from __future__ import annotations

import pytest

from actors.errors import Invalid
from actors.settings import Settings


def test_limits_are_read_from_the_environment() -> None:
    found = Settings.from_environment(
        {"GREENROOM_SQUAD_EXECUTIONS": "9", "GREENROOM_LEDGER_EVENTS": "50", "GREENROOM_LEDGER_BYTES": "4096"}
    )
    assert (found.squad_executions, found.ledger_events, found.ledger_bytes) == (9, 50, 4096)
    plain = Settings.from_environment({})
    assert (plain.squad_executions, plain.ledger_events, plain.ledger_bytes) == (5, 10_000, 8 << 20)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²"])
def test_a_limit_that_is_no_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(Invalid, match="GREENROOM_LEDGER_EVENTS"):
        Settings.from_environment({"GREENROOM_LEDGER_EVENTS": text})
