"""A web page as Markdown or plain text, good enough for a model to read; no style, script or navigation chrome."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "canvas"})
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section",
        "summary", "table", "tbody", "thead", "tr", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_EMPHASIS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "kbd": "`"}
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_BLANKS = re.compile(r"[ \t\r\n\f]+")
_GAPS = re.compile(r"\n{3,}")


def to_markdown(page: str, base: str = "") -> str:
    """Return a page as Markdown; links become absolute by ``base``."""
    return _convert(page, base, markdown=True)


def to_text(page: str) -> str:
    """Return a page's visible text, one line per block."""
    return _convert(page, "", markdown=False)


def _convert(page: str, base: str, *, markdown: bool) -> str:
    reader = _Reader(base, markdown=markdown)
    reader.feed(page)
    reader.close()
    lines = (line.rstrip() for line in "".join(reader.out).split("\n"))
    return _GAPS.sub("\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    def __init__(self, base: str, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._base = base
        self._markdown = markdown
        self._skipping = ""
        self._skip_depth = 0
        self._pre = 0
        self._lists: list[int | None] = []
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            self._skip_depth += tag == self._skipping
            return
        if tag in _SKIPPED:
            self._skipping, self._skip_depth = tag, 1
            return
        if tag == "body":
            self._skipping = ""
        attributes = dict(attrs)
        if tag == "br":
            self.out.append("\n")
        elif tag in _HEADINGS:
            self.out.append("\n\n" + (_HEADINGS[tag] if self._markdown else ""))
        elif tag in {"ul", "ol"}:
            self._lists.append(0 if tag == "ol" else None)
            self.out.append("\n")
        elif tag == "li":
            self._item()
        elif tag in {"td", "th"}:
            self.out.append(" | " if self._markdown else "\t")
        elif tag == "tr":
            self.out.append("\n")
        elif tag in _BLOCKS:
            self._start_block(tag)
        elif self._markdown:
            self._inline(tag, attributes)

    def _start_block(self, tag: str) -> None:
        self.out.append("\n\n")
        if tag == "pre":
            self._pre += 1
            self.out.append("```\n" if self._markdown else "")
        elif tag == "hr" and self._markdown:
            self.out.append("---\n\n")
        elif tag == "blockquote" and self._markdown:
            self.out.append("> ")

    def _item(self) -> None:
        depth = max(len(self._lists) - 1, 0)
        mark = "- "
        if self._lists and self._lists[-1] is not None:
            number = self._lists[-1] + 1
            self._lists[-1] = number
            mark = f"{number}. "
        self.out.append("\n" + "  " * depth + mark)

    def _inline(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag == "a":
            self._links.append(urljoin_safely(self._base, attributes.get("href") or ""))
            self.out.append("[" if self._links[-1] else "")
        elif tag == "img" and (about := attributes.get("alt")):
            self.out.append(f"![{about}]({urljoin_safely(self._base, attributes.get('src') or '')})")
        elif tag in _EMPHASIS and not self._pre:
            self.out.append(_EMPHASIS[tag])

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping:
                self._skip_depth -= 1
                if self._skip_depth == 0:
                    self._skipping = ""
            return
        if tag in _VOID:
            return
        if tag in {"ul", "ol"}:
            if self._lists:
                self._lists.pop()
            self.out.append("\n")
        elif tag == "pre":
            self._pre = max(self._pre - 1, 0)
            self.out.append("\n```\n\n" if self._markdown else "\n\n")
        elif tag in _HEADINGS or (tag in _BLOCKS and tag != "tr"):
            self.out.append("\n\n")
        elif tag == "a" and self._markdown and self._links:
            target = self._links.pop()
            self.out.append(f"]({target})" if target else "")
        elif tag in _EMPHASIS and self._markdown and not self._pre:
            self.out.append(_EMPHASIS[tag])

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._pre:
            self.out.append(data)
            return
        text = _BLANKS.sub(" ", data)
        if text == " " and (not self.out or self.out[-1].endswith(("\n", " "))):
            return
        self.out.append(text.lstrip() if self.out and self.out[-1].endswith("\n") else text)


def urljoin_safely(base: str, link: str) -> str:
    """Return an absolute link, or nothing for one that is malformed or runs code."""
    if link.strip().lower().startswith(("javascript:", "data:")):
        return ""
    try:
        return urljoin(base, link)
    except ValueError:
        return ""
