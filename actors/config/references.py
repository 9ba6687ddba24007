"""References between agents that may lead outside the file: what is one, and what it is called here."""

from __future__ import annotations


def is_external(ref: str) -> bool:
    """Tell whether an agent reference names an OCI artifact or a URL: it has a slash."""
    return "/" in ref


def external_name(ref: str) -> tuple[str, str]:
    """Split ``name:ref`` into the name the agent has in this file and where it comes from.

    Without a name it is the last part of the path, less tag, digest and extension:
    ``docker.io/me/reviewer:v2`` is ``reviewer``.
    """
    head, colon, rest = ref.partition(":")
    has_port = rest.partition("/")[0].isdigit()
    if colon and head and "/" not in head and "/" in rest and not rest.startswith("//") and not has_port:
        return head, rest
    last = ref.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]
    name = last.split("@", 1)[0].split(":", 1)[0]
    for extension in (".yaml", ".yml"):
        name = name.removesuffix(extension)
    return name, ref
