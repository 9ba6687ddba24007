"""The models of a command: real ones, recorded or replayed, and the download bar of the local one's weights."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from actors.models.cassette import Cassette, Player, Recorder
from actors.models.catalog import Models
from actors.models.recording import cassette_path
from actors.settings import Settings


def models_for(settings: Settings, *, fake: str | None = None, record: str | None = None) -> Models:
    """Return the models, which answer from the recording ``fake`` or are recorded to ``record``.

    Raises:
        click.UsageError: both were asked for.
        Invalid: the recording cannot be read.
    """
    if fake and record:
        raise click.UsageError("--fake and --record exclude each other")
    cassette: Cassette | None = None
    if fake:
        cassette = Player(cassette_path(str(Path(fake).expanduser())))
    elif record:
        cassette = Recorder(cassette_path(str(Path(record).expanduser())))
    download = Download(Console(stderr=True))
    return Models(settings.environment, settings.data_dir, cassette=cassette, progress=download.show)


class Download:
    """Shows how far the one download is: a bar on a terminal, one line elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._announced = False

    def show(self, done: int, total: int) -> None:
        """Take note that ``done`` of ``total`` bytes are here."""
        if not self._announced:
            self._announced = True
            self._console.print(
                f"Fetching the local model's weights, once: {total / 1e6:.0f} MB", highlight=False
            )
            if self._console.is_terminal:
                self._progress = Progress(
                    TextColumn("  "),
                    BarColumn(),
                    DownloadColumn(),
                    TimeRemainingColumn(),
                    console=self._console,
                    transient=True,
                )
                self._task = self._progress.add_task("", total=total)
                self._progress.start()
        if self._progress is not None:
            self._progress.update(self._task, completed=done)
            if done >= total:
                self._progress.stop()
                self._progress = None
