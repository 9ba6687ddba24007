"""Language-model providers behind one protocol: plain async code that knows no actors and no sessions."""

from actors.models.network import allow_network, forbid_network

__all__ = ["allow_network", "forbid_network"]
