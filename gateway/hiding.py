"""Pages an administrator has hidden: which paths go with a page, and the refusal (squads contract 5.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote

from gateway.errors import HttpFailure

PAGES: Mapping[str, Sequence[str]] = {
    "/squad": (
        "/api/v1/squads",
        "/api/v1/squad-discussions",
        "/api/v1/squad-templates",
        "/api/v1/squad-registry",
    ),
}
"""Page id → the path prefixes it stands for."""


class Hiding:
    """The hidden pages of a server.

    Args:
        pages: Their ids.

    Raises:
        ValueError: there is no such page to hide.
    """

    def __init__(self, pages: Collection[str]) -> None:
        unknown = sorted(set(pages) - PAGES.keys())
        if unknown:
            raise ValueError(f"no such page: {', '.join(unknown)}; there is {', '.join(PAGES)}")
        self._pages = frozenset(pages)
        self._prefixes = tuple(prefix for page in self._pages for prefix in PAGES[page])

    def check_path(self, path: str) -> None:
        """Refuse a path, encoded or not, that belongs to a hidden page. Raises: HttpFailure, 403."""
        if not self._prefixes:
            return
        plain = unquote(path)
        if any(plain == prefix or plain.startswith(prefix + "/") for prefix in self._prefixes):
            raise _hidden()

    def check_page(self, page: str) -> None:
        """Refuse what else, tools for example, belongs to a hidden page. Raises: HttpFailure, 403."""
        if page in self._pages:
            raise _hidden()


def _hidden() -> HttpFailure:
    return HttpFailure(403, "this feature is hidden by the administrator", "feature_hidden")
