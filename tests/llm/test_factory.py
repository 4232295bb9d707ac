from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taskweaver_ext.errors import ConfigError, ModelError
from taskweaver_ext.llm.chat_model import Message, RetryScheduled
from taskweaver_ext.llm.factory import WELL_KNOWN_ADDRESSES, create_chat_model
from taskweaver_ext.llm.model_errors import ModelSetupError
from taskweaver_ext.llm.model_settings import ApiType, ModelSettings
from taskweaver_ext.llm.secret import Secret
from tests.support.model_replies import read_reply
from tests.support.model_server import HttpFailure, ModelServer, ScriptedAnswer, ScriptEntry

QUESTION = (Message("user", "Say something."),)


@pytest.mark.parametrize(("api_type", "address"), WELL_KNOWN_ADDRESSES.items())
def test_each_provider_has_a_well_known_address(api_type: ApiType, address: str) -> None:
    settings = ModelSettings(api_type=api_type, api_key=Secret("a-key"), model="m")

    assert create_chat_model(settings).name == f"m at {address}"


@pytest.mark.parametrize(
    ("api_base", "place"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1"),
        ("http://localhost:11434/", "http://localhost:11434/v1"),
        ("http://elsewhere/ollama/v1", "http://elsewhere/ollama/v1"),
    ],
)
def test_ollama_is_found_with_and_without_the_path(api_base: str, place: str) -> None:
    settings = ModelSettings(api_type="ollama", api_base=api_base, model="m")

    assert create_chat_model(settings).name == f"m at {place}"


def test_a_name_shows_no_password_of_the_address() -> None:
    settings = ModelSettings(api_base="https://user:pass-word@host/v1", model="m")

    assert create_chat_model(settings).name == "m at https://host/v1"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (ModelSettings(), "Set llm.api_key"),
        (ModelSettings(api_type="anthropic"), "Set llm.api_key"),
        (ModelSettings(api_type="azure", api_key=Secret("a-key")), "Set llm.api_base"),
        (ModelSettings(api_base="localhost:8000"), "http://"),
        (ModelSettings(api_base="http://host/v1?api-version=1"), "goes into llm.api_version"),
        (ModelSettings(api_base="http://host/v1#top"), "end before the question mark or #"),
        (ModelSettings(api_base="http://host/v1/chat/completions"), "before /chat/completions"),
        (ModelSettings(api_base="http://a host/v1"), "a space or a line break"),
        (ModelSettings(api_base="http://host:port/v1"), "is no address: Port could not"),
        (ModelSettings(api_base="http://[::1/v1"), "is no address: Invalid IPv6"),
    ],
)
def test_incomplete_settings_are_refused_with_advice(settings: ModelSettings, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        create_chat_model(settings)


@pytest.mark.parametrize("api_type", ["openai", "anthropic"])
def test_a_compatible_endpoint_needs_no_key(api_type: ApiType) -> None:
    with ModelServer([ScriptedAnswer("hello")]) as server:
        api_base = server.openai_url if api_type == "openai" else server.anthropic_url
        model = create_chat_model(ModelSettings(api_type=api_type, api_base=api_base))
        reply = read_reply(model.stream(QUESTION))

    assert reply.text == "hello"


def test_the_model_of_the_settings_asks_again_when_the_provider_is_overloaded() -> None:
    script: list[ScriptEntry] = [
        HttpFailure(429, headers={"retry-after": "0"}),
        ScriptedAnswer("hello"),
    ]
    with ModelServer(script) as server:
        model = create_chat_model(ModelSettings(api_base=server.openai_url))
        with model.stream(QUESTION) as stream:
            events = list(stream)

    assert isinstance(events[0], RetryScheduled)
    assert len(server.requests) == 2


def test_a_missing_model_file_is_named_with_the_way_to_get_one(tmp_path: Path) -> None:
    model = create_chat_model(ModelSettings(api_type="local"), models_folder=tmp_path)

    with pytest.raises(ModelSetupError, match="qwen2.5-coder.*taskweaver-ext model fetch"):
        read_reply(model.stream(QUESTION))


@pytest.mark.parametrize(
    ("api_type", "package"),
    [("openai", "openai"), ("anthropic", "anthropic"), ("local", "xllamacpp")],
)
def test_a_missing_package_is_named_with_the_way_to_get_it(
    api_type: ApiType, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model_file = tmp_path / "model.gguf"
    model_file.touch()
    settings = ModelSettings(api_type=api_type, api_key=Secret("a-key"), model=str(model_file))
    monkeypatch.setitem(sys.modules, package, None)  # what an import of it then finds

    with pytest.raises(ModelError, match=f"{package}.*pip install") as caught:
        read_reply(create_chat_model(settings).stream(QUESTION))

    assert isinstance(caught.value, ModelSetupError)


def test_no_vendor_package_is_imported_before_it_is_used() -> None:
    code = """
import sys
from taskweaver_ext.llm.factory import create_chat_model
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.secret import Secret
for api_type in ("openai", "anthropic", "local"):
    create_chat_model(ModelSettings(api_type=api_type, api_key=Secret("a-key")))
print([name for name in ("openai", "anthropic", "xllamacpp") if name in sys.modules])
"""

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )

    assert result.stdout.strip() == "[]", result.stderr
