"""The table of known providers: where they are, how they are authenticated, which dialect they read.

Data only; ``catalog`` turns a row into a provider.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from actors.models.openai_wire import Dialect

_OPENAI = Dialect(reasoning="omit", token_field="max_completion_tokens")  # noqa: S106 tokens of text
_STRICT = Dialect(reasoning="omit")
_TOLERANT = Dialect()


class Vendor(Struct, frozen=True):
    """One provider.

    ``key_variables`` are alternatives, empty for servers without a key. ``{NAME}`` in ``base_url`` is taken from the
    environment; ``base_url_variable`` replaces it. ``default_model`` is used by ``auto``; without one, or with
    ``automatic`` off because its variable is commonly set for other purposes, the provider is never chosen
    unasked.
    """

    name: str
    base_url: str
    key_variables: tuple[str, ...] = ()
    base_url_variable: str = ""
    kind: Literal["openai", "anthropic"] = "openai"
    dialect: Dialect = _TOLERANT
    default_model: str = ""
    automatic: bool = True
    key_header: str = ""


VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (  # in the order in which `auto` looks for a key
        Vendor(
            "anthropic",
            "https://api.anthropic.com",
            ("ANTHROPIC_API_KEY",),
            "ANTHROPIC_BASE_URL",
            kind="anthropic",
            default_model="claude-sonnet-4-5",
        ),
        Vendor(
            "openai",
            "https://api.openai.com/v1",
            ("OPENAI_API_KEY",),
            "OPENAI_BASE_URL",
            dialect=_OPENAI,
            default_model="gpt-5-mini",
        ),
        Vendor(
            "github-copilot",
            "https://api.githubcopilot.com",
            ("GITHUB_TOKEN",),
            dialect=_STRICT,
            default_model="gpt-4.1",
            automatic=False,
        ),
        Vendor(
            "google",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            dialect=_STRICT,
            default_model="gemini-2.5-flash",
        ),
        Vendor(
            "mistral",
            "https://api.mistral.ai/v1",
            ("MISTRAL_API_KEY",),
            dialect=_STRICT,
            default_model="mistral-small-latest",
        ),
        Vendor(
            "openrouter",
            "https://openrouter.ai/api/v1",
            ("OPENROUTER_API_KEY",),
            default_model="anthropic/claude-sonnet-4.5",
        ),
        Vendor("xai", "https://api.x.ai/v1", ("XAI_API_KEY",), dialect=_STRICT, default_model="grok-4"),
        Vendor(
            "groq",
            "https://api.groq.com/openai/v1",
            ("GROQ_API_KEY",),
            dialect=_STRICT,
            default_model="openai/gpt-oss-120b",
        ),
        Vendor(
            "deepseek", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), default_model="deepseek-chat"
        ),
        Vendor(
            "cerebras",
            "https://api.cerebras.ai/v1",
            ("CEREBRAS_API_KEY",),
            dialect=_STRICT,
            default_model="gpt-oss-120b",
        ),
        Vendor(
            "together",
            "https://api.together.xyz/v1",
            ("TOGETHER_API_KEY",),
            default_model="openai/gpt-oss-120b",
        ),
        Vendor(
            "fireworks",
            "https://api.fireworks.ai/inference/v1",
            ("FIREWORKS_API_KEY",),
            default_model="accounts/fireworks/models/gpt-oss-120b",
        ),
        Vendor(
            "moonshot",
            "https://api.moonshot.ai/v1",
            ("MOONSHOT_API_KEY",),
            default_model="kimi-k2-turbo-preview",
        ),
        Vendor("minimax", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), default_model="MiniMax-M2"),
        Vendor("requesty", "https://router.requesty.ai/v1", ("REQUESTY_API_KEY",)),
        Vendor("nebius", "https://api.studio.nebius.com/v1", ("NEBIUS_API_KEY",)),
        Vendor("nvidia", "https://integrate.api.nvidia.com/v1", ("NVIDIA_API_KEY",)),
        Vendor("huggingface", "https://router.huggingface.co/v1", ("HF_TOKEN",), automatic=False),
        Vendor("baseten", "https://inference.baseten.co/v1", ("BASETEN_API_KEY",)),
        Vendor(
            "ovhcloud", "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1", ("OVH_AI_ENDPOINTS_ACCESS_TOKEN",)
        ),
        Vendor("vercel", "https://ai-gateway.vercel.sh/v1", ("AI_GATEWAY_API_KEY",)),
        Vendor(
            "cloudflare",
            "https://api.cloudflare.com/client/v4/accounts/{CLOUDFLARE_ACCOUNT_ID}/ai/v1",
            ("CLOUDFLARE_API_TOKEN",),
            automatic=False,
        ),
        Vendor(
            "azure",
            "{AZURE_OPENAI_ENDPOINT}/openai/v1",
            ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
            dialect=_OPENAI,
            key_header="api-key",
        ),
        Vendor(
            "amazon-bedrock",
            "https://bedrock-runtime.{AWS_REGION}.amazonaws.com/openai/v1",
            ("AWS_BEARER_TOKEN_BEDROCK",),
            dialect=_STRICT,
        ),
        Vendor("opencode-zen", "https://opencode.ai/zen/v1", ("OPENCODE_API_KEY",)),
        Vendor("opencode-go", "https://opencode.ai/zen/go/v1", ("OPENCODE_API_KEY",)),
        Vendor("dmr", "http://localhost:12434/engines/v1", base_url_variable="MODEL_RUNNER_BASE_URL"),
        Vendor("ollama", "http://localhost:11434/v1", base_url_variable="OLLAMA_BASE_URL"),
        Vendor("vllm", "http://localhost:8000/v1", base_url_variable="VLLM_BASE_URL"),
        Vendor("llamacpp", "http://localhost:8080/v1", base_url_variable="LLAMACPP_BASE_URL"),
        Vendor("lmstudio", "http://localhost:1234/v1", base_url_variable="LMSTUDIO_BASE_URL"),
    )
}
"""Every provider that needs no code of its own, by name."""
