"""Scrubbing secrets of well-known shapes out of texts that leave for a model or a log. Pure.

Only shapes that carry their own mark are replaced, so that ordinary hashes, ids and prose survive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

JSON = Any
MARK = "[REDACTED]"

_SECRETS = re.compile(
    r"""
    (?P<pem>-----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----.*?(?:-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----|\Z))
    | \b(?:
        sk-(?:ant-|proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{20,}     # OpenAI, Anthropic, OpenRouter
        | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}               # Stripe
        | gh[pousr]_[A-Za-z0-9]{30,}                             # GitHub
        | github_pat_[A-Za-z0-9_]{40,}
        | glpat-[A-Za-z0-9_-]{20,}                               # GitLab
        | (?:AKIA|ASIA)[A-Z0-9]{16}                              # AWS key ids
        | AIza[A-Za-z0-9_-]{35}                                  # Google
        | hf_[A-Za-z0-9]{30,}                                    # Hugging Face
        | xox[abprs]-[A-Za-z0-9-]{10,}                           # Slack
        | npm_[A-Za-z0-9]{36}
        | pypi-[A-Za-z0-9_-]{40,}
        | dckr_pat_[A-Za-z0-9_-]{20,}                            # Docker
        | gsk_[A-Za-z0-9]{40,}                                   # Groq
        | xai-[A-Za-z0-9]{40,}
        | eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}   # JSON web tokens
    )
    | (?P<aws>(?i:aws_secret_access_key["']?\s*[=:]\s*["']?))[A-Za-z0-9/+=]{40}
    | (?P<url>[a-z][a-z0-9+.-]*://[^\s/:@]+:)[^\s/@]+(?=@)
    """,
    re.VERBOSE | re.DOTALL,
)


_MARKS = (
    "sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AKIA", "ASIA",
    "AIza", "hf_", "xox", "npm_", "pypi-", "dckr_pat_", "gsk_", "xai-", "eyJ", "PRIVATE KEY", "://",
)  # fmt: skip
"""What a text must contain for the slow search to be worth it."""


def redact(text: str) -> str:
    """Return ``text`` with every known secret replaced by :data:`MARK`; the same object when there is none."""
    if not any(mark in text for mark in _MARKS) and "secret_access" not in text.lower():
        return text
    if _SECRETS.search(text) is None:
        return text
    return _SECRETS.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    return (match["aws"] or match["url"] or "") + MARK


def redact_json(value: JSON) -> JSON:
    """Return a JSON value with the secrets in all its strings replaced; keys stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, JSON]", value)
        return {key: redact_json(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [redact_json(item) for item in cast("Sequence[JSON]", value)]
    return value
