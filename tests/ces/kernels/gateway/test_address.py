"""Addresses of gateways: what people write is understood, and secrets in it are not shown."""

from __future__ import annotations

import pytest

from taskweaver_ext.ces.kernels.gateway.address import check_token, read_address
from taskweaver_ext.ces.kernels.gateway.api import GatewayApi, GatewaySettings
from taskweaver_ext.errors import ConfigError

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "url", "websocket_url"),
    [
        ("http://127.0.0.1:8888", "http://127.0.0.1:8888", "ws://127.0.0.1:8888"),
        ("http://127.0.0.1:8888/", "http://127.0.0.1:8888", "ws://127.0.0.1:8888"),
        (" https://host/a/b/ \n", "https://host/a/b", "wss://host/a/b"),
        ("HTTPS://Host:8443/Prefix", "https://host:8443/Prefix", "wss://host:8443/Prefix"),
        ("HtTp://[::1]:8888", "http://[::1]:8888", "ws://[::1]:8888"),
    ],
)
def test_an_address_is_read_however_it_is_written(text: str, url: str, websocket_url: str) -> None:
    address = read_address(text)

    assert (address.url, address.websocket_url) == (url, websocket_url)
    assert address.is_encrypted == url.startswith("https:")
    assert address.is_on_this_machine == ("127." in url or "::1" in url)


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8888/?token=hunter2",
        "http://localhost:8888/lab?token=hunter2",
        "http://localhost:8888/tree?token=hunter2",
    ],
)
def test_what_jupyter_prints_is_an_address_with_its_token(text: str) -> None:
    address = read_address(text)

    assert (address.url, address.token) == ("http://localhost:8888", SECRET)
    assert SECRET not in repr(address)


def test_a_prefix_that_looks_like_a_page_stays_in_an_address_without_a_token() -> None:
    assert read_address("http://host/tree").url == "http://host/tree"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8888",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://[::1",
        "http://ada:hunter2@host:8888",
        "http://ada:hun?hunter2@host",
        "http://ada:hun/hunter2@host",
        "ada:hunter2@host:8888",
        "hub:8888?token=hunter2",
        "http://host/?key=hunter2",
        "http://host/#token=hunter2",
    ],
)
def test_what_is_no_address_is_refused_without_showing_secrets(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_address(text)

    assert SECRET not in str(error.value)
    assert "TASKWEAVER_GATEWAY" in str(error.value) or "token=" in str(error.value)


def test_capitals_do_not_switch_certificates_off() -> None:
    api = GatewayApi(GatewaySettings(url="HTTPS://localhost:1"))
    api.close()

    assert api.tls is not None
    assert api.tls.check_hostname


def test_the_token_of_the_settings_wins_over_that_of_the_address() -> None:
    settings = GatewaySettings(url="http://localhost:1/?token=old", token=" hunter2\n")
    api = GatewayApi(settings)
    api.close()

    assert api.headers["Authorization"] == "token hunter2"
    assert SECRET not in repr(settings)
    assert "old" not in repr(settings)


def test_a_token_that_no_request_can_carry_is_refused_unseen() -> None:
    with pytest.raises(ConfigError, match="TASKWEAVER_GATEWAY_TOKEN") as error:
        check_token("hunter2\r\nCookie: x")

    assert SECRET not in str(error.value)
