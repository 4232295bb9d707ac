"""Files up and down, records, displays: of the session's folders, and nothing beyond them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.server.conftest import OpenServer
from tests.support.server import ServerProcess, Values

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HOSTILE_PATHS = [
    "../x",
    "..%2Fx",
    "a/../../x",
    "%2Fetc%2Fpasswd",
    "a%00b",
    "a%0Ab",
    "a%5Cb",
    "link/x",
    "link",
    "a/",
    "x" * 300,
    "C:x",
]


def test_a_file_goes_up_and_comes_down_as_it_was(server: ServerProcess) -> None:
    session = server.make_session()
    files = f"sessions/{session}/files"
    content = bytes(range(256)) * 8192

    name = "deep/below/größe 1.bin"
    up = server.http.put(f"{files}/{name}", content=iter([content[:9], content[9:]]))
    events = server.run_to_end(session, f"print(len(open({name!r}, 'rb').read()))")
    down = server.http.get(f"{files}/{name}")

    assert up.status_code == 201
    assert up.json()["size_bytes"] == len(content)
    assert events[-1]["extra"]["state"] == "finished"
    assert down.content == content
    assert down.headers["content-disposition"].startswith("attachment")
    with server.socket(session) as told:
        assert told.event("session_files_added")["extra"]["files"] == [name]
    assert [one["path"] for one in server.get(files)["files"]] == [name]
    assert server.http.delete(f"{files}/{name}").status_code == 204
    assert server.get(files)["files"] == []


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_path_that_leads_elsewhere_is_refused(
    server: ServerProcess, path: str, tmp_path: Path
) -> None:
    session = server.make_session()
    (tmp_path / "x").write_text("secret")
    server.run_to_end(session, f"import os; os.symlink({str(tmp_path)!r}, 'link')")
    url = f"{server.url}api/v1/sessions/{session}/files/{path}"

    for method in ("GET", "PUT", "DELETE"):
        response = server.http.request(method, url, content=b"changed" if method == "PUT" else None)
        assert response.status_code in (400, 404, 405, 409), (method, response.text)
    assert (tmp_path / "x").read_text() == "secret"


@pytest.mark.parametrize(
    ("name", "kind", "policy"),
    [
        ("a.html", "text/html; charset=utf-8", "sandbox allow-scripts"),
        ("a.svg", "image/svg+xml; charset=utf-8", "sandbox allow-scripts"),
        ("a.js", "text/plain; charset=utf-8", "sandbox; default-src 'none'"),
        ("a.png", "image/png", "sandbox; default-src 'none'"),
        ("a.exe", "application/octet-stream", "sandbox; default-src 'none'"),
        ("a", "application/octet-stream", "sandbox; default-src 'none'"),
    ],
)
def test_a_file_has_a_safe_type_and_a_policy_of_its_own(
    server: ServerProcess, name: str, kind: str, policy: str
) -> None:
    session = server.make_session()
    server.http.put(f"sessions/{session}/files/{name}", content=b"<script>x()</script>")

    response = server.http.get(f"sessions/{session}/files/{name}")

    assert response.headers["content-type"] == kind
    assert response.headers["content-security-policy"].startswith(policy)
    assert "allow-same-origin" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_the_record_comes_in_parts_of_whole_characters(server: ServerProcess) -> None:
    session = server.make_session()
    events = server.run_to_end(session, "print('äö€😀' * 1000, end='')")
    record = f"sessions/{session}/records/{execution_of(events)}"

    text, offset, parts = "", 0, 0
    while True:
        part = server.get(record, offset=offset, limit=997)
        assert part["offset"] == offset
        text, offset, parts = text + part["text"], part["next_offset"], parts + 1
        if offset == part["size"]:
            break

    assert text == "äö€😀" * 1000
    assert parts > 5
    assert server.get(record, offset=1, limit=10)["offset"] == 2, "it begins with a character"
    whole = server.http.get(f"{record}/whole")
    assert whole.text == text
    assert server.http.get(record, params={"stream": "stderr"}).status_code == 404


def test_the_record_is_searched(server: ServerProcess) -> None:
    session = server.make_session()
    events = server.run_to_end(session, "for n in range(20_000): print('Line', n)")
    record = f"sessions/{session}/records/{execution_of(events)}/search"

    found = server.get(record, text="line 1999", limit=5)
    capital = server.get(record, text="LINE")

    assert found["total"] == 11
    assert [one["text"] for one in found["lines"]] == [
        *("Line 1999", "Line 19990", "Line 19991", "Line 19992", "Line 19993")
    ]
    first = found["lines"][0]
    assert first["line"] == 2000
    part = server.get(record.removesuffix("/search"), offset=first["offset"], limit=9)
    assert part["text"] == "Line 1999"
    assert capital["total"] == 0


def test_displays_come_by_their_number_small_and_large(server: ServerProcess) -> None:
    session = server.make_session()
    source = f"""
from IPython.display import display
display({{"text/html": "<b>hi</b>", "image/png": {base64.b64encode(PNG).decode()!r}}}, raw=True)
display({{"text/html": "<i>" + "x" * 200_000 + "</i>", "text/plain": "much"}}, raw=True)
"""
    events = server.run_to_end(session, source)
    small, large = [one["seq"] for one in events if inner(one).get("event") == "display"]

    picture = server.http.get(f"sessions/{session}/displays/{small}", params={"type": "image/png"})
    html = server.http.get(f"sessions/{session}/displays/{small}")
    big = server.http.get(f"sessions/{session}/displays/{large}")
    missing = server.http.get(f"sessions/{session}/displays/{small}", params={"type": "a/b"})

    assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
    assert html.text == "<b>hi</b>"
    assert html.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert len(big.text) == 200_007
    assert missing.status_code == 404
    assert server.http.get(f"sessions/{session}/displays/1").status_code == 404
    assert server.http.get(f"sessions/{session}/displays/x").status_code == 404


def test_texts_are_made_ready_to_be_shown(server: ServerProcess) -> None:
    items = [
        {"kind": "markdown", "text": "**bold** <script>x</script> $a^2$"},
        {"kind": "code", "text": "def f(): pass", "language": "python"},
        {"kind": "terminal", "text": "\x1b[31mred\x1b[0m <b>"},
        {"kind": "latex", "text": "x^2"},
        {"kind": "html", "text": "<table onclick=x><tr><td>1<script>y</script></table>"},
    ]

    markdown, code, terminal, latex, html = server.post("render", items=items)["html"]

    assert "<strong>bold</strong>" in markdown
    assert "<script>" not in markdown + html
    assert "<math" in markdown
    assert 'class="k-k"' in code
    assert terminal == '<span class="f1">red</span> &lt;b&gt;'
    assert "<msup>" in latex
    assert "<table>" in html
    assert ".k-k" in server.http.get("words.css").text


def inner(event: Values) -> Values:
    """What an execution says in an event."""
    return dict(event.get("extra", {}).get("event") or {})


def execution_of(events: list[Values]) -> str:
    [finished] = [one for one in events if inner(one).get("event") == "finished"]
    return str(finished["extra"]["execution_id"])


def test_sessions_work_where_they_are_told_to_also_when_they_do_not_run(
    open_server: OpenServer, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "here.txt").write_text("mine")
    server = open_server("--cwd", str(folder))
    session = server.make_session()
    server.run_to_end(session, "open('made.txt', 'w').write('x')")

    server.post(f"sessions/{session}/end")

    assert server.get(f"sessions/{session}")["cwd"] == str(folder)
    listed = [one["path"] for one in server.get(f"sessions/{session}/files")["files"]]
    assert listed == ["here.txt", "made.txt"]
    assert server.http.get(f"sessions/{session}/files/here.txt").text == "mine"


def test_a_file_that_code_made_comes_by_the_number_of_its_event(server: ServerProcess) -> None:
    session = server.make_session()
    source = "import matplotlib.pyplot as plot\nplot.plot([1, 2])\nplot.show()"
    events = server.run_to_end(session, source)

    made = [one["seq"] for one in events if inner(one).get("event") == "artifact"]
    assert made
    for number in made:
        picture = server.http.get(f"sessions/{session}/artifacts/{number}")
        assert picture.headers["content-type"] == "image/png"
        assert picture.content.startswith(b"\x89PNG")
    assert server.http.get(f"sessions/{session}/artifacts/1").status_code == 404
