"""Failures without the groups that nurseries put around them, at the edge where people catch them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast


@contextmanager
def ungrouped() -> Generator[None]:
    """Let the block's one failure out as itself; several stay together in their group."""
    try:
        yield
    except ExceptionGroup as group:
        leaves = list(_leaves(group))
        if len(leaves) != 1:
            raise
        raise leaves[0] from leaves[0].__cause__


def _leaves(group: ExceptionGroup[Exception]) -> Generator[Exception]:
    for each in group.exceptions:
        if isinstance(each, ExceptionGroup):
            yield from _leaves(cast("ExceptionGroup[Exception]", each))
        else:
            yield each
