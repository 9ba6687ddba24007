"""The ``think`` toolset: a place for a model to write down a thought; nothing happens."""

from __future__ import annotations

from actors.tools.builtin.toolset import Builtin
from actors.tools.options import ThinkOptions


class Think(Builtin):
    """Keeps the thoughts of the session so far and returns them."""

    name = "think"
    text = "Use think to reason step by step before you act, and when a result surprises you."
    _KEPT = 50

    def __init__(self, _options: ThinkOptions) -> None:
        super().__init__()
        self._thoughts: list[str] = []
        self.offer(self.think, inline=True)

    def think(self, thought: str) -> str:
        """Write down a thought. It changes nothing and gets no new information.

        Args:
            thought: What you think.
        """
        self._thoughts = [*self._thoughts, thought][-self._KEPT :]
        return "Thoughts:\n" + "\n".join(self._thoughts)
