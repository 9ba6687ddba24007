"""Marks on the schema's types for what users may write in more than one way; the decoder acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """How a value may be written besides its plain form."""

    ONE_OR_MANY = "one item instead of a list"
    PAIRS = "a list of one-key maps instead of a map"
    PARAGRAPHS = "a list of texts, joined by blank lines"
    REST = "collects the object's unknown keys"
    DURATION = "text in Go's duration syntax"
    THINKING = "a number of tokens or an effort word"


ONE_OR_MANY = Form.ONE_OR_MANY
PAIRS = Form.PAIRS
PARAGRAPHS = Form.PARAGRAPHS
REST = Form.REST
DURATION = Form.DURATION
THINKING = Form.THINKING


@dataclass(frozen=True)
class Shorthand:
    """A plain value in the object's place is the value of ``field``."""

    field: str
