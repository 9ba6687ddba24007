from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.errors import Invalid, Unsupported
from actors.models.catalog import Models, Overrides, known_models, model_info
from actors.models.provider import Completed, Message, ModelRequest, Usage
from actors.models.vendors import VENDORS
from actors.testing.model import ScriptedModel, say
from actors.testing.stub_server import StubServer, assistant

NOWHERE = Path("/nonexistent")
KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"}


def models(**environment: str) -> Models:
    return Models(environment, NOWHERE)


@pytest.mark.parametrize("ref", ["", "gpt-5", "/gpt-5", "openai/", "nonsense"])
def test_malformed_reference_is_invalid(ref: str) -> None:
    with pytest.raises(Invalid, match="provider/model"):
        models().resolve(ref)


def test_unknown_provider_names_the_known_ones() -> None:
    with pytest.raises(Invalid, match=r"unknown provider 'opnai'.*anthropic.*openai"):
        models().resolve("opnai/gpt-5")


@pytest.mark.parametrize(
    ("ref", "variable"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("google/gemini-2.5-pro", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("cloudflare/x", "CLOUDFLARE_API_TOKEN"),
    ],
)
def test_missing_key_names_the_variable(ref: str, variable: str) -> None:
    with pytest.raises(Unsupported, match=variable):
        models().resolve(ref)


def test_missing_part_of_a_base_url_names_the_variable() -> None:
    with pytest.raises(Unsupported, match="CLOUDFLARE_ACCOUNT_ID"):
        models(CLOUDFLARE_API_TOKEN="t").resolve("cloudflare/x")


@pytest.mark.parametrize(
    ("ref", "environment", "base_url"),
    [
        ("openai/gpt-5", KEYS, "https://api.openai.com/v1"),
        ("openai/gpt-5", {**KEYS, "OPENAI_BASE_URL": "http://h/v1/"}, "http://h/v1"),
        ("anthropic/claude-sonnet-4-5", KEYS, "https://api.anthropic.com"),
        ("ollama/llama3.2", {}, "http://localhost:11434/v1"),
        ("dmr/ai/smollm2", {}, "http://localhost:12434/engines/v1"),
        (
            "cloudflare/x",
            {"CLOUDFLARE_API_TOKEN": "t", "CLOUDFLARE_ACCOUNT_ID": "acc"},
            "https://api.cloudflare.com/client/v4/accounts/acc/ai/v1",
        ),
        (
            "azure/gpt-4o",
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"},
            "https://r.openai.azure.com/openai/v1",
        ),
    ],
)
async def test_provider_is_opened_where_it_is(ref: str, environment: dict[str, str], base_url: str) -> None:
    registry = Models(environment, NOWHERE)
    binding = registry.resolve(ref)
    assert binding.provider.base_url == base_url  # type: ignore[attr-defined]
    assert f"{binding.provider.name}/{binding.model}" == ref
    await registry.aclose()
    await registry.aclose()


async def test_one_client_per_base_url_and_key() -> None:
    registry = Models({**KEYS, "OTHER": "sk-x"}, NOWHERE)
    first = registry.resolve("openai/gpt-5").provider
    assert registry.resolve("openai/gpt-4o").provider is first
    assert registry.resolve("openai/gpt-5", Overrides(base_url="http://h/v1")).provider is not first
    assert registry.resolve("openai/gpt-5", Overrides(token_key="OTHER")).provider is not first
    await registry.aclose()


def test_base_url_of_ones_own_needs_no_key_but_a_named_variable_must_be_set() -> None:
    models().resolve("openai/gpt-5", Overrides(base_url="http://h/v1"))
    with pytest.raises(Unsupported, match="MY_KEY"):
        models().resolve("openai/gpt-5", Overrides(base_url="http://h/v1", token_key="MY_KEY"))


@pytest.mark.parametrize(
    ("flag", "environment", "ref"),
    [
        ("groq/x", {**KEYS, "GREENROOM_DEFAULT_MODEL": "xai/y"}, "groq/x"),
        ("", {**KEYS, "GREENROOM_DEFAULT_MODEL": "xai/y"}, "xai/y"),
        ("", KEYS, "anthropic/claude-sonnet-4-5"),
        ("", {"OPENAI_API_KEY": "k"}, "openai/gpt-5-mini"),
        ("", {"OPENAI_API_KEY": "", "GEMINI_API_KEY": "k"}, "google/gemini-2.5-flash"),
        ("", {"GITHUB_TOKEN": "k", "HF_TOKEN": "k"}, "local/smollm2-135m"),
        ("", {}, "local/smollm2-135m"),
    ],
)
def test_default_model_rule(flag: str, environment: dict[str, str], ref: str) -> None:
    assert Models(environment, NOWHERE).default(flag) == ref


def test_auto_is_the_first_provider_with_a_key() -> None:
    binding = models(OPENAI_API_KEY="k").resolve("auto")
    assert (binding.provider.name, binding.model) == ("openai", "gpt-5-mini")


async def test_registered_provider_wins_and_is_closed_with_the_registry() -> None:
    registry = models()
    scripted = ScriptedModel([say("x")])
    registry.register("openai", scripted)
    registry.register("scripted", scripted)
    assert registry.resolve("openai/whatever").provider is scripted
    assert registry.resolve("scripted/a/b").model == "a/b"


def test_dated_names_share_the_facts_of_the_undated() -> None:
    info = model_info("anthropic", "claude-sonnet-4-5-20250929")
    assert (info.model, info.context_limit) == ("claude-sonnet-4-5-20250929", 200_000)
    assert model_info("openai", "gpt-4o-2024-08-06").input_cost == 2.5
    assert model_info("mistral", "mistral-small-latest").context_limit > 0
    assert model_info("openai", "never-heard-of").context_limit == 0


def test_facts_are_consistent() -> None:
    refs = [info.ref for info in known_models()]
    assert len(refs) == len(set(refs)) >= 60
    for info in known_models():
        assert info.provider == "local" or info.provider in VENDORS
        assert info.context_limit >= info.output_limit >= 0
        assert info.output_cost >= info.input_cost >= info.cache_read_cost >= 0
    for vendor in VENDORS.values():
        if vendor.default_model:
            assert model_info(vendor.name, vendor.default_model).context_limit > 0 or vendor.name in {
                "github-copilot",
                "fireworks",
            }


def test_cost_counts_each_kind_of_token_and_overrides_win() -> None:
    registry = Models(KEYS, NOWHERE)
    usage = Usage(1_000_000, 1_000_000, cached_input_tokens=1_000_000, cached_write_tokens=1_000_000)
    assert registry.resolve("anthropic/claude-sonnet-4-5").info.cost(usage) == pytest.approx(
        3 + 15 + 0.3 + 3.75
    )
    priced = registry.resolve("openai/gpt-5", Overrides(cost={"input": 1.0, "output": 2.0}))
    assert priced.info.cost(usage) == 3.0


def test_available_models_are_those_with_a_key_and_the_local_one() -> None:
    assert {info.provider for info in models(GROQ_API_KEY="k").available()} == {"groq", "local"}


async def test_gateway_takes_the_calls_and_learns_where_they_belong(background: trio.Nursery) -> None:
    server = StubServer(assistant("through"))
    registry = Models({}, NOWHERE, gateway="http://gate/", connect=server.connect(background))
    for ref, path, forward in (
        ("openai/gpt-5", "/v1/chat/completions", "https://api.openai.com/v1"),
        ("anthropic/claude-sonnet-4-5", "/v1/messages", "https://api.anthropic.com"),
    ):
        binding = registry.resolve(ref)
        asked = ModelRequest(model=binding.model, messages=(Message("user", "hi"),))
        async with binding.provider.open_stream(asked) as stream:
            last = [batch async for batch in stream][-1][-1]
        assert isinstance(last, Completed)
        assert last.message.content == "through"
        assert (server.requests[-1].path, server.requests[-1].headers["x-cagent-forward"]) == (path, forward)
    await registry.aclose()
