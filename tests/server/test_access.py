"""Who may talk to a server: hostile requests do nothing, whatever they bring."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers
from websockets.exceptions import InvalidStatus

from taskweaver_ext.server.access import AccessRules
from tests.server.conftest import OpenServer
from tests.support.chat_terminal import environ
from tests.support.command_line import PROGRAM
from tests.support.data import DATA
from tests.support.server import ServerProcess
from tests.support.terminal_program import LIMIT_SECONDS

EVIL = "http://evil.example"


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": "Basic dG9rZW4="},
        {"cookie": "taskweaver_PORT=x; a"},
        {"cookie": 'taskweaver_PORT="\\777"; ;;=,'},
    ],
)
def test_without_the_token_nothing_is_done(server: ServerProcess, headers: dict[str, str]) -> None:
    port = server.url.rstrip("/").rpartition(":")[2]
    headers = {name: value.replace("PORT", port) for name, value in headers.items()}

    for method, path in [
        ("GET", "output.css"),
        ("POST", "api/v1/sessions"),
        ("GET", "api/v1/sessions"),
        ("GET", "api/v1/openapi.json"),
        ("GET", "api/v1/metrics"),
    ]:
        response = httpx.request(method, server.url + path, headers=headers)
        assert code_of(response) == (401, "no_token"), path
    page = httpx.get(server.url, headers=headers)
    assert (page.status_code, "address that it printed" in page.text) == (401, True)
    assert server.get("sessions")["total"] == len(server.get("sessions")["sessions"])


def test_health_needs_no_token_and_says_nothing(server: ServerProcess) -> None:
    answer = httpx.get(f"{server.url}api/v1/health").json()

    assert set(answer) == {"status", "version"}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "localhost.evil.example"])
def test_a_name_that_is_not_ours_is_refused(server: ServerProcess, host: str) -> None:
    response = server.http.get("sessions", headers={"host": host})

    assert code_of(response) == (403, "wrong_host")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_addresses_and_localhost_are_ours(server: ServerProcess, name: str) -> None:
    assert server.http.get("sessions", headers={"host": f"{name}:9"}).is_success


@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "file://", "https://"])
def test_a_page_of_another_site_can_do_nothing(server: ServerProcess, origin: str) -> None:
    response = server.http.post("sessions", headers={"origin": origin})

    assert code_of(response) == (403, "wrong_origin")


def test_our_own_page_is_welcome(server: ServerProcess) -> None:
    response = server.http.get("sessions", headers={"origin": server.url.rstrip("/")})

    assert response.is_success


def test_a_socket_of_another_site_or_without_token_is_refused(server: ServerProcess) -> None:
    session = server.make_session()
    for headers, status in [
        ({"origin": EVIL}, 403),
        ({"authorization": "Bearer no"}, 401),
    ]:
        with pytest.raises(InvalidStatus) as refused, server.socket(session, headers=headers):
            pass
        assert refused.value.response.status_code == status


def test_the_address_gives_a_cookie_and_loses_the_token(server: ServerProcess) -> None:
    with httpx.Client() as browser:
        entrance = browser.get(f"{server.address}&session=s1")
        page = browser.get(server.url)
        sessions = browser.get(f"{server.url}api/v1/sessions")
        from_elsewhere = browser.get(
            f"{server.url}api/v1/sessions", headers={"sec-fetch-site": "same-site"}
        )

    assert (entrance.status_code, entrance.headers["location"]) == (303, "/?session=s1")
    cookie = entrance.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert server.token not in cookie
    assert page.is_success
    assert "text/html" in page.headers["content-type"]
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert sessions.is_success
    assert from_elsewhere.status_code == 401


def test_a_wrong_token_gives_no_cookie(server: ServerProcess) -> None:
    response = httpx.get(f"{server.url}?token=wrong")

    assert response.status_code == 401
    assert "set-cookie" not in response.headers


def test_the_token_is_in_no_log(open_server: OpenServer, project: Path) -> None:
    server = open_server()
    httpx.get(server.address)
    httpx.get(f"{server.url}?token={server.token}x")
    server.make_session()
    server.terminate()

    logs = [path.read_text(errors="replace") for path in project.rglob("*.log")]
    assert all(server.token not in text for text in [*logs, *server.errors])


def test_a_token_of_a_file_stays_the_same(open_server: OpenServer, tmp_path: Path) -> None:
    place = tmp_path / "token"
    first = open_server("--token-file", str(place))
    second = open_server("--token-file", str(place))

    assert first.token == second.token == place.read_text().strip()
    assert place.stat().st_mode & 0o077 == 0


def test_without_a_token_only_this_machine_is_let_in(
    open_server: OpenServer, project: Path
) -> None:
    server = open_server("--no-token")

    assert server.get("sessions")["sessions"] == []
    refused = subprocess.run(
        [*PROGRAM, "serve", "-p", str(project), "--host", "0.0.0.0", "--no-token"],
        capture_output=True,
        text=True,
        env=environ(project),
        timeout=LIMIT_SECONDS,
    )
    assert refused.returncode == 2
    assert "everybody who reaches" in refused.stderr


def test_listening_to_everybody_says_what_that_means(open_server: OpenServer) -> None:
    server = open_server("--host", "0.0.0.0")

    assert server.token
    said = "".join(server.errors)
    assert "can run code here" in said
    assert "--tls-cert" in said
    port = server.url.rstrip("/").rpartition(":")[2]
    answer = httpx.get(
        f"http://127.0.0.1:{port}/api/v1/sessions",
        headers={"host": socket.gethostname(), "authorization": f"Bearer {server.token}"},
    )
    assert answer.is_success


def test_tls_works_with_a_certificate(open_server: OpenServer) -> None:
    server = open_server(
        "--tls-cert", str(DATA / "localhost.pem"), "--tls-key", str(DATA / "localhost.key")
    )

    assert server.url.startswith("https://")
    assert server.get("health")["status"] == "ok"
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with server.socket(server.make_session(), ssl=unchecked) as events:
        assert events.event("session_start")


def test_no_request_waits_for_a_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = AccessRules(token="", host="0.0.0.0", port=80)
    own_name = Headers({"host": socket.gethostname()})
    assert rules.problem_with(own_name, "/") is None

    monkeypatch.delattr(socket, "getfqdn")

    assert rules.problem_with(own_name, "/") is None
