"""Credentials are found by the names of values and anywhere inside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.machine.child_environment import is_passed_on
from taskweaver_ext.machine.credentials import secret_values

CONNECTION_STRINGS = {
    "https://gateway.example/?token=abcdef123456": "abcdef123456",
    "https://gateway.example/api#access_token=abcdef123456&x=1": "abcdef123456",
    "postgres://user:pass-word@host:5432/db": "pass-word",
    "postgres://user:p%40ss%2Fword@host/db": "p@ss/word",
    "postgres://user:pa/ss?word@host/db": "pa/ss?word",
    "amqp://:only-password@host": "only-password",
    "https://ghp_abcdefghijklmnopqrstuvwxyz012345@github.com/x": (
        "ghp_abcdefghijklmnopqrstuvwxyz012345"
    ),
    "http://proxy,http://me:secret-1@proxy:3128": "secret-1",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyYmF6==;Suffix=x": (
        "Zm9vYmFyYmF6=="
    ),
    "Server=tcp:db,1433;User ID=sa;Password=hunter22;Encrypt=True": "hunter22",
    "Server=db;Uid=sa;Pwd=hunter22": "hunter22",
    "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0c2VjcmV0": (
        "c2VjcmV0c2VjcmV0"
    ),
    "host=localhost dbname=x password=hunter22 user=me": "hunter22",
    "https://a.blob.core.windows.net/c?sv=2020&sig=abc%2Fdefgh": "abc/defgh",
    '{"host": "db", "password": "hunter22"}': "hunter22",
    "authorization: Bearer abcdef.ghijkl": "abcdef.ghijkl",
    "Authorization=Basic bWU6c2VjcmV0": "bWU6c2VjcmV0",
    "jdbc:oracle:thin:scott/tiger-cat@//host:1521/service": "tiger-cat",
    "https://hooks.slack.com/services/T0AB/B0CD/abcdefghijkl": (
        "hooks.slack.com/services/T0AB/B0CD/abcdefghijkl"
    ),
    "https://discord.com/api/webhooks/123456/abcdefghijkl": (
        "discord.com/api/webhooks/123456/abcdefghijkl"
    ),
    "123456789:AAabcdefghijklmnopqrstuvwxyz0123456": (
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456"
    ),
    "pypi-AgEIcHlwaS5vcmcabcdef": "pypi-AgEIcHlwaS5vcmcabcdef",
    "see sk-abcdefghijklmnop0123": "sk-abcdefghijklmnop0123",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdef": (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdef"
    ),
}

HARMLESS = (
    *("/usr/bin:/bin:/home/me/keys/bin", "en_US.UTF-8", "xterm-256color", "http://proxy:3128"),
    *("https://gateway.example/api?page=2", "localhost,.example.com", "python3", "2", ""),
    *("me@example.com", "/etc/ssl/certs/ca-certificates.crt", "C:\\Users\\me", "1000:1000"),
    *("https://example.com/a@b", "token", "mailto:me@example.com"),
)


@pytest.mark.parametrize("value", CONNECTION_STRINGS)
@pytest.mark.parametrize("name", ["TASKWEAVER_GATEWAY_URL", "XDG_DATA_DIRS", "HTTPS_PROXY"])
def test_code_never_sees_a_value_with_credentials_in_it(name: str, value: str) -> None:
    assert not is_passed_on(name, value)


@pytest.mark.parametrize("value", HARMLESS)
def test_values_without_credentials_are_passed_on(value: str) -> None:
    assert is_passed_on("TASKWEAVER_SOMETHING", value)
    assert secret_values({"SOMETHING": value}) == set()


@pytest.mark.parametrize(("value", "secret"), CONNECTION_STRINGS.items())
def test_the_whole_and_the_credentials_in_it_are_secret(value: str, secret: str) -> None:
    assert {value, secret} <= secret_values({"SOMETHING": value})


def test_a_user_in_an_address_is_not_passed_on_and_no_secret() -> None:
    assert not is_passed_on("TASKWEAVER_X", "ssh://developer@host")
    assert secret_values({"X": "ssh://developer@host"}) == set()


def test_a_private_key_is_secret_whatever_its_name() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"

    assert not is_passed_on("TASKWEAVER_X", key)
    assert secret_values({"X": key}) == {key}


def test_values_of_secret_names_are_secret_also_when_a_plugin_is_given_them() -> None:
    values = {"OPENAI_API_KEY": "abcdefgh", "PLUGIN_sql_PASSWORD": "hunter2", "LANG": "de_DE.UTF-8"}

    assert secret_values(values) == {"abcdefgh", "hunter2"}


def test_keys_anywhere_in_settings_are_secret() -> None:
    settings = {
        "llm.api_key": "abcdefgh",
        "llm.api_base": "https://me:pass-word@host/v1",
        "llm.max_tokens": 4096,
        "llm.stop_token": ["<|endoftext|>"],
        "ext_llms.llm_configs": {"other": {"llm.api_key": "ijklmnop", "llm.model": "gpt-4"}},
        "plugins": [{"configurations": {"api_token": "qrstuvwx", "password": 918273645546}}],
    }

    assert secret_values(settings) == {
        *("abcdefgh", "ijklmnop", "qrstuvwx", "918273645546"),
        *("https://me:pass-word@host/v1", "pass-word", "me:pass-word"),
    }


def test_switches_numbers_and_paths_are_no_secrets(tmp_path: Path) -> None:
    key_file = tmp_path / "key.pem"
    key_file.touch()
    values = {
        "TOKENIZERS_PARALLELISM": "disabled",
        "USE_AUTH_TOKEN": "enabled",
        "MAX_TOKEN": "1048576",
        "MIN_TOKEN": 1048576,
        "HAS_KEY": True,
        "SSL_KEY_FILE": str(key_file),
        "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1",
        "KEY": "short",
        "GPG_KEY": "A035C8C19219BA821ECEA86B64E628F8D684696D",
        "BASE64_KEY": "/gone/but/a/key",
    }

    assert secret_values(values) == {"/gone/but/a/key"}
