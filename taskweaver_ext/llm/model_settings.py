"""Which model to use and how: TaskWeaver's `llm.*` settings, checked, frozen, the key unseen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, get_args

from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.secret import Secret

ApiType: TypeAlias = Literal[
    "openai",
    "azure",
    "azure_ad",
    "ollama",
    "qwen",
    "zhipuai",
    "groq",
    "google_genai",
    "anthropic",
    "local",
]

ResponseFormat: TypeAlias = Literal["json_object", "json_schema", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long a model may be silent, and speak. The vendors' own default is ten minutes."""

    connect_seconds: float = 10.0
    first_token_seconds: float = 120.0
    """From the request to the first piece of the reply: models that think may need a while."""
    between_tokens_seconds: float = 60.0
    whole_reply_seconds: float = 1800.0
    """From the request to the end of the reply, however steadily it comes."""


ON_THIS_MACHINE = TimeLimits(first_token_seconds=900.0, whole_reply_seconds=3600.0)
"""A model on this machine reads a long prompt for minutes before it says anything."""

MAX_TOKENS_ON_THIS_MACHINE = 1024
"""A small model that has lost its way is stopped after a minute or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model, under TaskWeaver's names and with its defaults."""

    api_type: ApiType = "openai"
    api_base: str = ""
    """Where the provider listens; empty for the well-known address of the `api_type`."""
    api_key: Secret = field(default=Secret(), repr=False)
    model: str = "gpt-4"
    """The provider's name for the model (Azure: the deployment; local: the path of a GGUF file)."""
    response_format: ResponseFormat = "json_object"
    temperature: float = 0.0
    max_tokens: int = 4096
    """Room for a reply, thoughts included, in which TaskWeaver's 1024 cut longer programs off."""
    top_p: float = 0.0
    """0 is not sent: some providers refuse it, and with a temperature of 0 it changes nothing."""
    seed: int | None = 123456
    stop_token: tuple[str, ...] = ("<EOS>",)
    api_version: str = "2024-06-01"
    """Azure only."""
    context_tokens: int | None = None
    """How much the model can take in; None: not known, and 8192 for local models."""
    max_retries: int = 4
    limits: TimeLimits = field(default_factory=TimeLimits)
    threads: int | None = None
    """Local only: how many processor threads to use; None leaves one processor to others."""

    def room_for_reply(self, wanted: int | None) -> int:
        """Return how long a reply may be when the caller wants it shorter, or does not care."""
        return min(wanted or self.max_tokens, self.max_tokens)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> ModelSettings:
        """Read dotted settings such as `llm.model` and `llm.openai.temperature`.

        A value under `llm.<api_type>.` wins over one under `llm.openai.`, which wins over
        one under `llm.`; but key, address and model of OpenAI are for OpenAI alone. Names that
        are not about models are left alone.

        Raises:
            ConfigError: Some values make no sense; the message names all of them.
        """
        return _SettingsReader(values).read()


_OF_ONE_PROVIDER = frozenset({"api_key", "api_base", "model"})

_Choice = TypeVar("_Choice", bound=str)


class _SettingsReader:
    """Collect the values of one model, and every mistake in them."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self._mistakes: list[str] = []
        self._api_type: ApiType = "openai"

    def read(self) -> ModelSettings:
        defaults = ModelSettings()
        self._api_type = self._choice("api_type", get_args(ApiType), defaults.api_type)
        limits = TimeLimits() if self._api_type != "local" else ON_THIS_MACHINE
        context_tokens = self._optional_integer("context_tokens", defaults.context_tokens)
        settings = ModelSettings(
            api_type=self._api_type,
            api_base=self._text("api_base", defaults.api_base),
            api_key=self._key(),
            model=self._text("model", defaults.model),
            response_format=self._choice(
                "response_format", get_args(ResponseFormat), defaults.response_format
            ),
            temperature=self._number("temperature", defaults.temperature),
            max_tokens=int(
                self._number("max_tokens", self._usual_max_tokens(context_tokens), at_least=1)
            ),
            top_p=self._number("top_p", defaults.top_p),
            seed=self._optional_integer("seed", defaults.seed),
            stop_token=self._texts("stop_token", defaults.stop_token),
            api_version=self._text("api_version", defaults.api_version),
            context_tokens=context_tokens,
            max_retries=int(self._number("max_retries", defaults.max_retries)),
            limits=TimeLimits(
                connect_seconds=self._number("connect_seconds", limits.connect_seconds),
                first_token_seconds=self._number("first_token_seconds", limits.first_token_seconds),
                between_tokens_seconds=self._number(
                    "between_tokens_seconds", limits.between_tokens_seconds
                ),
                whole_reply_seconds=self._number("whole_reply_seconds", limits.whole_reply_seconds),
            ),
            threads=self._optional_integer("threads", defaults.threads),
        )
        if self._mistakes:
            raise ConfigError("The model's settings cannot be used. " + " ".join(self._mistakes))
        return settings

    def _usual_max_tokens(self, context_tokens: int | None) -> int:
        """Return how long a reply may be by default: most of a context is there to be read."""
        usual = MAX_TOKENS_ON_THIS_MACHINE
        if self._api_type != "local":
            usual = ModelSettings().max_tokens
        return min(usual, max(1, context_tokens // 4)) if context_tokens else usual

    def _find(self, name: str) -> tuple[str, object]:
        sections = [f"llm.{self._api_type}", "llm.openai", "llm"]
        if name in _OF_ONE_PROVIDER and self._api_type != "openai":
            sections.remove("llm.openai")
        for key in (f"{section}.{name}" for section in sections):
            if self._values.get(key) is not None:
                return key, self._values[key]
        return f"llm.{name}", None

    def _text(self, name: str, default: str) -> str:
        key, value = self._find(name)
        if value is None or isinstance(value, str):
            return value or default
        self._mistakes.append(f"{key} must be text.")
        return default

    def _key(self) -> Secret:
        """Return the key, without the line break that files and shells put after it."""
        key = self._text("api_key", "").strip()
        if not key.isascii() or not key.isprintable() or " " in key:
            name, _ = self._find("api_key")
            self._mistakes.append(
                f"{name} holds a space, a line break or a letter that no key has, such as a curly"
                " quotation mark. Copy it again."
            )
        return Secret(key)

    def _texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        key, value = self._find(name)
        if value is None:
            return default
        if isinstance(value, str):
            return (value,) if value else ()
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self._mistakes.append(f"{key} must be text or a list of texts.")
        return default

    def _choice(self, name: str, choices: tuple[_Choice, ...], default: _Choice) -> _Choice:
        key, value = self._find(name)
        if value is None:
            return default
        for choice in choices:
            if choice == value:
                return choice
        self._mistakes.append(f"{key} is {value!r}; it can be {', '.join(choices)}.")
        return default

    def _number(self, name: str, default: float, *, at_least: float = 0) -> float:
        key, value = self._find(name)
        if value is None:
            return default
        try:
            number = float(value)  # type: ignore[arg-type]  # what is no number raises below
        except (TypeError, ValueError):
            number = float("nan")
        if math.isfinite(number) and number >= at_least:
            return number
        self._mistakes.append(f"{key} is {value!r}; it must be a number of at least {at_least:g}.")
        return default

    def _optional_integer(self, name: str, default: int | None) -> int | None:
        _, value = self._find(name)
        if value is None:
            return default
        return int(self._number(name, 0))
