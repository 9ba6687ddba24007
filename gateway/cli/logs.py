"""Logging of the command line: where records go and in which form; what is logged is each room's business."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

ROOMS = ("actors", "gateway", "greenroom")
"""Their records are shown from the chosen level on; other libraries' only when they warn."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encoder = msgspec.json.Encoder(enc_hook=str)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the caller passed as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextFormatter(logging.Formatter):
    """``time LEVEL logger message key=value …``, times in UTC."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - the base's name
        """Return the record's time in UTC with milliseconds."""
        return (
            datetime.fromtimestamp(record.created, UTC).strftime(datefmt or "%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base's name
        """Append the fields to the message."""
        shown = [f"{name}={value}" for name, value in fields_of(record).items()]
        return " ".join([super().formatMessage(record), *shown])


class JsonFormatter(logging.Formatter):
    """One JSON object per record; a traceback is its ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; what JSON does not know becomes text."""
        document: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return _encoder.encode(document).decode()


def configure(level: str, *, file: Path | None = None, json: bool = False) -> None:
    """Send the log to ``file`` (appending, directories are made) or to standard error.

    Raises:
        click.ClickException: the file cannot be written.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write the log: {error}") from error
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for room in ROOMS:
        logging.getLogger(room).setLevel(level)
