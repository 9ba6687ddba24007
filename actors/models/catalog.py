"""From ``provider/model`` to something that answers: registry of providers, keys, facts and the default model.

Opens one client per base URL and key and shares it; decides nothing about retries (``fallback``) or agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from actors.errors import Invalid, Unsupported
from actors.models.cassette import Cassette
from actors.models.http import Connect, open_client
from actors.models.provider import ModelInfo, Provider
from actors.models.vendors import VENDORS, Vendor

LOCAL = "local"
LOCAL_MODEL = "smollm2-135m"
DEFAULT_MODEL_VARIABLE = "GREENROOM_DEFAULT_MODEL"
_DATED = re.compile(r"[-@](?:latest|\d{8}|\d{4}-\d{2}-\d{2}|\d{4})$")


class Overrides(Struct, frozen=True, omit_defaults=True):
    """What an agent file may say about a model beyond its reference.

    ``token_key`` names the variable that holds the key. ``cost`` has ``input``, ``output``, ``cache_read`` and
    ``cache_write`` in USD per million tokens. ``bypass_gateway`` calls the provider itself although a gateway is set.
    """

    base_url: str = ""
    token_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cost: Mapping[str, float] | None = None
    bypass_gateway: bool = False


class Binding(Struct, frozen=True):
    """A model that can be called: ``provider.open_stream(ModelRequest(model=model, ...))``."""

    provider: Provider
    model: str
    info: ModelInfo


class Models:
    """The registry of a runtime.

    Args:
        environment: Where keys, base URLs and the default are read.
        data_dir: Holds the local model's weights, under ``models``.
        gateway: Base URL that takes the calls of all vendors, which are told apart by the ``X-Cagent-Forward``
            header; models with a base URL of their own bypass it.
        cassette: Records all calls, or answers them from a recording, for which no keys are needed.
        progress: Told about the download of the local model's weights: bytes so far, bytes in all.
        connect: Opens connections instead of TCP and TLS; for tests.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        data_dir: Path,
        *,
        gateway: str = "",
        cassette: Cassette | None = None,
        progress: Callable[[int, int], None] | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._environment = environment
        self._data_dir = data_dir
        self._gateway = gateway.rstrip("/")
        self._cassette = cassette
        self._progress = progress
        self._connect = connect
        self._registered: dict[str, Provider] = {}
        self._open: dict[tuple[str, ...], Provider] = {}

    def register(self, name: str, provider: Provider) -> None:
        """Add a provider of one's own under ``name``; it wins over a vendor of that name and is closed with us."""
        self._registered[name] = provider

    def resolve(self, ref: str, overrides: Overrides | None = None) -> Binding:
        """Return the model that ``ref`` names: ``provider/model``, or ``auto`` for the first with a key.

        Raises:
            Invalid: the reference is malformed or names an unknown provider.
            Unsupported: the provider's key or another variable is not set.
        """
        settings = overrides or Overrides()
        name, model = self.parse(self.automatic() if ref == "auto" else ref)
        info = model_info(name, model)
        if settings.cost is not None:
            info = _priced(info, settings.cost)
        return Binding(self._provider(name, settings), model, info)

    def parse(self, ref: str) -> tuple[str, str]:
        """Split a reference into provider and model; the model may hold slashes.

        Raises:
            Invalid: see :meth:`resolve`.
        """
        name, slash, model = ref.partition("/")
        if not slash or not name or not model:
            raise Invalid(f"model {ref!r}: expected provider/model, such as openai/gpt-5-mini, or auto")
        if name not in self.names():
            known = ", ".join(sorted(self.names()))
            raise Invalid(f"model {ref!r}: unknown provider {name!r}; known are {known}")
        return name, model

    def names(self) -> set[str]:
        """Return the providers that references may name."""
        return {LOCAL, *VENDORS, *self._registered}

    def default(self, flag: str = "") -> str:
        """Return the default model's reference: the flag, the variable, a provider with a key, else ``local``."""
        return flag or self._environment.get(DEFAULT_MODEL_VARIABLE, "") or self.automatic()

    def automatic(self) -> str:
        """Return the default model of the first provider whose key is set, else the local model."""
        for vendor in VENDORS.values():
            if vendor.default_model and vendor.automatic and self._key(vendor.key_variables):
                return f"{vendor.name}/{vendor.default_model}"
        return f"{LOCAL}/{LOCAL_MODEL}"

    def available(self) -> list[ModelInfo]:
        """Return the known models that can be called now, the local one last."""
        usable = {name for name, vendor in VENDORS.items() if self._key(vendor.key_variables)}
        return [info for info in known_models() if info.provider in usable or info.provider == LOCAL]

    async def aclose(self) -> None:
        """Close every provider; idempotent."""
        providers = [*self._open.values(), *self._registered.values()]
        self._open.clear()
        self._registered.clear()
        for provider in providers:
            await provider.aclose()

    def _provider(self, name: str, settings: Overrides) -> Provider:
        if self._cassette is None:
            return self._real_provider(name, settings)
        vendor = VENDORS.get(name)
        base_url = settings.base_url or (vendor.base_url if vendor else "")
        cassette = self._cassette
        return self._shared(
            ("cassette", name, base_url),
            lambda: cassette.bind(name, base_url, lambda: self._real_provider(name, settings)),
        )

    def _real_provider(self, name: str, settings: Overrides) -> Provider:
        if name in self._registered:
            return self._registered[name]
        if name == LOCAL:
            return self._shared((LOCAL,), self._open_local)
        vendor = VENDORS[name]
        key = self._key_of(vendor, settings)
        base_url = settings.base_url or self._base_url(vendor)
        headers = dict(settings.headers)
        if vendor.key_header:
            headers[vendor.key_header] = key
        if self._gateway and not settings.base_url and not settings.bypass_gateway:
            headers["X-Cagent-Forward"] = base_url
            base_url = self._gateway + urlsplit(base_url).path
        identity = (name, base_url, key, *(f"{header}: {value}" for header, value in sorted(headers.items())))
        return self._shared(identity, lambda: self._open_vendor(vendor, base_url, key, headers))

    def _shared(self, identity: tuple[str, ...], opener: Callable[[], Provider]) -> Provider:
        if identity not in self._open:
            self._open[identity] = opener()
        return self._open[identity]

    def _open_vendor(self, vendor: Vendor, base_url: str, key: str, headers: Mapping[str, str]) -> Provider:
        # The SDKs take half a second to import; a server without keys never pays it.
        client = open_client(self._environment, self._connect)
        if vendor.kind == "anthropic":
            from actors.models.anthropic import Anthropic

            return Anthropic(base_url, key, client, headers=headers, output_limit=_output_limit)
        from actors.models.openai_compatible import OpenAICompatible

        return OpenAICompatible(vendor.name, base_url, key, client, dialect=vendor.dialect, headers=headers)

    def _open_local(self) -> Provider:
        from actors.models.local import LocalModel

        return LocalModel(self._data_dir / "models", self._progress)

    def _key(self, variables: tuple[str, ...]) -> str:
        return next((self._environment[name] for name in variables if self._environment.get(name)), "")

    def _key_of(self, vendor: Vendor, settings: Overrides) -> str:
        variables = (settings.token_key,) if settings.token_key else vendor.key_variables
        key = self._key(variables)
        if not key and (settings.token_key or (variables and not settings.base_url and not self._gateway)):
            raise Unsupported(f"provider {vendor.name}: set {' or '.join(variables)} to use it")
        return key

    def _base_url(self, vendor: Vendor) -> str:
        chosen = self._environment.get(vendor.base_url_variable, "") if vendor.base_url_variable else ""
        return (chosen or re.sub(r"\{(\w+)\}", self._variable(vendor), vendor.base_url)).rstrip("/")

    def _variable(self, vendor: Vendor) -> Callable[[re.Match[str]], str]:
        def value(match: re.Match[str]) -> str:
            found = self._environment.get(match[1], "").rstrip("/")
            if not found:
                raise Unsupported(f"provider {vendor.name}: set {match[1]} to use it")
            return found

        return value


@cache
def known_models() -> tuple[ModelInfo, ...]:
    """Return the facts of the data file, in its order."""
    data = resources.files("actors.models").joinpath("models.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[ModelInfo, ...])


@cache
def model_info(provider: str, model: str) -> ModelInfo:
    """Return what is known of a model; dated names share the facts of the undated one. Unknown: empty facts."""
    by_name = {(info.provider, info.model): info for info in known_models()}
    for name in (model, _DATED.sub("", model)):
        if info := by_name.get((provider, name)):
            return msgspec.structs.replace(info, model=model)
    return ModelInfo(provider=provider, model=model)


def _output_limit(model: str) -> int:
    return model_info("anthropic", model).output_limit


def _priced(info: ModelInfo, cost: Mapping[str, float]) -> ModelInfo:
    return msgspec.structs.replace(
        info,
        input_cost=cost.get("input", 0.0),
        output_cost=cost.get("output", 0.0),
        cache_read_cost=cost.get("cache_read", 0.0),
        cache_write_cost=cost.get("cache_write", 0.0),
    )
