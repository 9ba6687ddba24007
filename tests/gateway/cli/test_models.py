"""Recorded models and the download bar."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest
from rich.console import Console

from actors.errors import Invalid
from actors.settings import Settings
from gateway.cli.models import Download, models_for


def test_recording_and_replaying_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="exclude each other"):
        models_for(Settings(data_dir=tmp_path), fake="a", record="b")


def test_a_recording_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nope\.yaml"):
        models_for(Settings(data_dir=tmp_path), fake=str(tmp_path / "nope"))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_download_is_announced_once(terminal: bool) -> None:
    out = io.StringIO()
    download = Download(Console(file=out, force_terminal=terminal, width=80))
    for done in (0, 50_000_000, 93_000_000):
        download.show(done, 93_000_000)
    assert out.getvalue().count("Fetching the local model's weights, once: 93 MB") == 1
    assert ("\x1b" in out.getvalue()) is terminal
