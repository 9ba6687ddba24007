"""A prompt with its attachments as the model gets it. Images become parts, files are named, selections inlined."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.models.provider import Part
from gateway.copilot.shapes import as_list, as_object

JSON = Any
MAX_IMAGE = 8 << 20


def prompt_of(text: str, attachments: JSON) -> tuple[str, tuple[Part, ...]]:
    """Return the text for the model and what goes beside it."""
    named: list[str] = []
    inlined: list[str] = []
    parts: list[Part] = []
    for given in as_list(attachments) or []:
        if (each := as_object(given)) is not None:
            _add(each, named, inlined, parts)
    if named:
        text += "\n\n<attachments>\n" + "\n".join(named) + "\n</attachments>"
    return "\n\n".join([text, *inlined]), tuple(parts)


def _add(given: Mapping[str, JSON], named: list[str], inlined: list[str], parts: list[Part]) -> None:
    kind, name = given.get("type"), str(given.get("displayName") or "")
    if kind == "selection":
        path = given.get("filePath") or name
        inlined.append(f'<selection path="{path}">\n{given.get("text", "")}\n</selection>')
    elif kind == "blob":
        mime = str(given.get("mimeType") or "application/octet-stream")
        parts.append(_part(mime, str(given.get("data") or ""), name))
    elif kind in ("file", "directory"):
        path = str(given.get("path") or "")
        image = _image(path) if kind == "file" else None
        if image is not None:
            parts.append(image)
        lines = as_object(given.get("lineRange"))
        where = f" lines {lines.get('start')}-{lines.get('end')}" if lines is not None else ""
        named.append(f"- {kind} {path}{where}")
    elif kind:
        named.append(f"- {kind} {name or given.get('url') or given.get('title') or ''}".rstrip())


def _part(mime: str, data: str, name: str) -> Part:
    if mime.startswith("image/"):
        return Part("image", data=data, mime_type=mime, name=name)
    if mime.startswith("audio/"):
        return Part("audio", data=data, mime_type=mime, name=name)
    return Part("document", data=data, mime_type=mime, name=name or "attachment")


def _image(path: str) -> Part | None:
    mime = mimetypes.guess_type(path)[0] or ""
    file = Path(path)
    try:
        if not mime.startswith("image/") or not file.is_file() or file.stat().st_size > MAX_IMAGE:
            return None
        return _part(mime, base64.b64encode(file.read_bytes()).decode(), file.name)
    except OSError:
        return None
