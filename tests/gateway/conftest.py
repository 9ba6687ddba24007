"""Both doors: a test that asks for ``door`` runs once through each."""

from __future__ import annotations

import pytest

from gateway.settings import Settings
from tests.gateway.kit import QUICK

DOORS = {"front": QUICK, "quart": Settings(front=False, grace_seconds=QUICK.grace_seconds)}


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Settings:
    """Settings that serve by the front, and by Quart and Hypercorn."""
    return DOORS[request.param]
