from __future__ import annotations

import pytest

from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.llm.secret import Secret


def test_without_settings_the_defaults_are_taskweavers_but_for_the_room() -> None:
    settings = ModelSettings.from_mapping({})

    assert settings == ModelSettings()
    assert (settings.api_type, settings.model) == ("openai", "gpt-4")
    assert settings.response_format == "json_object"
    assert (settings.temperature, settings.max_tokens) == (0, 4096)
    assert (settings.top_p, settings.seed, settings.stop_token) == (0, 123456, ("<EOS>",))


def test_settings_are_read_from_a_taskweaver_configuration() -> None:
    settings = ModelSettings.from_mapping(
        {
            "llm.api_type": "groq",
            "llm.api_key": "a-key",
            "llm.api_base": "http://here/v1",
            "llm.model": "some-model",
            "llm.response_format": "text",
            "llm.openai.temperature": 0.5,
            "llm.openai.stop_token": ["a", "b"],
            "session.roles": ["planner"],
        }
    )

    assert settings.api_type == "groq"
    assert settings.api_key == Secret("a-key")
    assert (settings.api_base, settings.model) == ("http://here/v1", "some-model")
    assert settings.response_format == "text"
    assert (settings.temperature, settings.stop_token) == (0.5, ("a", "b"))


def test_a_value_for_the_provider_wins() -> None:
    settings = ModelSettings.from_mapping(
        {
            "llm.api_type": "azure",
            "llm.api_version": "general",
            "llm.openai.api_version": "openai",
            "llm.azure.api_version": "azure",
            "llm.openai.max_tokens": 5,
            "llm.max_tokens": 6,
        }
    )

    assert settings.api_version == "azure"
    assert settings.max_tokens == 5


def test_the_key_of_one_provider_is_not_sent_to_another() -> None:
    settings = ModelSettings.from_mapping(
        {
            "llm.api_type": "anthropic",
            "llm.api_key": "for-anthropic",
            "llm.openai.api_key": "for-openai",
            "llm.openai.api_base": "http://openai/v1",
            "llm.openai.temperature": 0.5,
        }
    )

    assert settings.api_key == Secret("for-anthropic")
    assert settings.api_base == ""
    assert settings.temperature == 0.5


def test_numbers_may_come_as_text_from_the_environment() -> None:
    settings = ModelSettings.from_mapping(
        {"llm.max_tokens": "77", "llm.first_token_seconds": "2.5", "llm.context_tokens": "4096"}
    )

    assert settings.max_tokens == 77
    assert settings.limits.first_token_seconds == 2.5
    assert settings.context_tokens == 4096


def test_all_mistakes_are_told_at_once_and_none_shows_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        ModelSettings.from_mapping(
            {
                "llm.api_type": "telepathy",
                "llm.api_key": ["not", "text"],
                "llm.response_format": "poem",
                "llm.max_tokens": 0,
                "llm.temperature": "hot",
                "llm.seed": "inf",
                "llm.stop_token": 3,
            }
        )

    message = str(caught.value)
    for name in ("api_type", "api_key", "response_format", "max_tokens", "temperature", "seed"):
        assert f"llm.{name}" in message
    assert "stop_token" in message
    assert "not" not in message.replace("cannot", "")


def test_a_model_on_this_machine_may_read_its_prompt_for_longer() -> None:
    local = ModelSettings.from_mapping({"llm.api_type": "local"})
    remote = ModelSettings.from_mapping({"llm.api_type": "openai"})
    told = ModelSettings.from_mapping({"llm.api_type": "local", "llm.first_token_seconds": 5})

    assert local.limits.first_token_seconds > remote.limits.first_token_seconds
    assert told.limits.first_token_seconds == 5


def test_a_reply_leaves_most_of_a_small_context_to_what_is_read() -> None:
    def max_tokens(**settings: object) -> int:
        named = {f"llm.{name}": value for name, value in settings.items()}
        return ModelSettings.from_mapping(named).max_tokens

    assert max_tokens(context_tokens=8192) == 2048
    assert max_tokens(context_tokens=8192, max_tokens=5000) == 5000
    assert max_tokens(context_tokens=100_000) == max_tokens()
    assert max_tokens(api_type="local") < max_tokens()
    assert ModelSettings(max_tokens=500).room_for_reply(1024) == 500
    assert ModelSettings(max_tokens=500).room_for_reply(20) == 20
    assert ModelSettings(max_tokens=500).room_for_reply(None) == 500


def test_a_key_loses_the_line_break_after_it() -> None:
    settings = ModelSettings.from_mapping({"llm.api_key": " sk-abcdef\n"})

    assert settings.api_key.reveal() == "sk-abcdef"


@pytest.mark.parametrize(
    "key", ["sk-abc\ndef", "sk-äbc", "\u201csk-abc\u201d", "sk abc", "sk-\0abc"]
)
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError, match=r"llm\.api_key holds a space, a line break") as caught:
        ModelSettings.from_mapping({"llm.api_key": key})

    assert "bc" not in str(caught.value)
