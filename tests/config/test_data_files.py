"""Files that a project brings end in a named error, soon and in little memory, whatever is in them.

The settings, a plugin, a role, a prompt and an example are read by the code that reads them for a
user; each content is read in a process of its own, whose memory is measured.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskweaver_ext.config.data_files import MOST_DEPTH, DataFileError, parse_json, read_json
from taskweaver_ext.config.loading import load
from taskweaver_ext.config.yaml_files import read_yaml
from taskweaver_ext.errors import ConfigError, PluginError
from taskweaver_ext.plugins.registry import read_plugin
from taskweaver_ext.roles.base.prompts import load_examples, load_prompts
from taskweaver_ext.roles.base.role import read_role

MB = 1 << 20
MOST_GROWTH_BYTES = 64 * MB
MOST_SECONDS = 20.0
"""Of processor time; what is not bounded needs minutes, or never ends."""

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number + 1}: &a{number + 1} [{', '.join([f'*a{number}'] * 9)}]\n" for number in range(9)
)
MERGES = "m0: &m0 {k0: 1}\n" + "".join(
    f"m{number + 1}: &m{number + 1} {{<<: [*m{number}, *m{number}], k{number + 1}: 1}}\n"
    for number in range(30)
)
YAML = {
    "deep lists": "a: " + "[" * 100_000,
    "deep mappings": "{a: " * 100_000,
    "deep blocks": "- " * 100_000 + "x",
    "deep keys": "? " * 100_000 + "x",
    "deep and closed": "a: " + "[" * 5000 + "]" * 5000,
    "billion laughs": LAUGHS,
    "merge keys": MERGES,
    "a reference to itself": "a: &a [*a]",
    "a mapping in itself": "&a {b: *a}",
    "a huge number": "a: " + "9" * 100_000,
    "a huge number of minutes": "a: 1" + ":59" * 100_000,
    "a huge fraction": "a: 1" + ":59" * 100_000 + ".5",
    "an object": "a: !!python/object/apply:os.system [ls]",
    "an unknown tag": "a: !mine 1",
    "a number that is none": "a: !!int x",
    "a number without digits": "a: !!float ''",
    "a truth that is none": "a: !!bool maybe",
    "a date that is none": "a: 2001-99-99",
    "a time that is none": "a: !!timestamp x",
    "a list as a key": "{[a]: b}",
    "an unfinished list": "a: [",
    "many values": "- x\n" * 200_000,
    "many empty lists": "[" + "[]," * 300_000 + "]",
    "too large": "#" * (2 * MB),
    "a control character": "a: \x00",
}
JSON = {
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "deep and closed": '{"a":' + "[" * 500 + "]" * 500 + "}",
    "a huge number": '{"a": ' + "9" * 100_000 + "}",
    "too large": '{"a": "' + "x" * (2 * MB) + '"}',
    "unfinished": "{",
}

MEASURED = """
import sys, time
from pathlib import Path
from taskweaver_ext.config.data_files import DataFileError, read_json
from taskweaver_ext.config.yaml_files import read_yaml

def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

read = {"json": read_json, "yaml": read_yaml}[sys.argv[1]]
before, began = resident("VmRSS"), time.process_time()
try:
    read(Path(sys.argv[2]))
    said = ""
except DataFileError as error:
    said = str(error)
import json
print(json.dumps([said, resident("VmHWM") - before, time.process_time() - began]))
"""


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        *(pytest.param("yaml", content, id=f"yaml: {name}") for name, content in YAML.items()),
        *(pytest.param("json", content, id=f"json: {name}") for name, content in JSON.items()),
    ],
)
def test_a_hostile_file_is_refused_in_bounds(tmp_path: Path, kind: str, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)

    command = [sys.executable, "-c", MEASURED, kind, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    said, growth, seconds = json.loads(child.stdout)
    assert said
    assert len(said) < 1000
    assert growth < MOST_GROWTH_BYTES
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize("content", [YAML["deep lists"], LAUGHS, "a: !!float ''", "a: 2001-99-99"])
@pytest.mark.parametrize(
    ("name", "read", "expected"),
    [
        ("x.yaml", read_plugin, PluginError),
        ("x.role.yaml", read_role, ConfigError),
        ("x.yaml", lambda path: load_prompts(path, None, "content"), ConfigError),
    ],
    ids=["plugin", "role", "prompt"],
)
def test_who_reads_yaml_names_the_file(
    tmp_path: Path,
    name: str,
    read: Callable[[Path], Any],
    expected: type[Exception],
    content: str,
) -> None:
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(expected) as caught:
        read(path)

    assert str(path) in str(caught.value)


def test_an_example_that_is_hostile_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "deep.yaml").write_text("rounds: " + "[" * 100_000)

    with caplog.at_level(logging.WARNING):
        assert load_examples(tmp_path, ["User"]) == []

    assert str(tmp_path / "deep.yaml") in caplog.text
    assert "nested more than" in caplog.text


@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_settings_that_are_hostile_are_a_named_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "taskweaver_config.json"
    path.write_text(content)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path)

    assert f"{path} is not valid JSON" in str(caught.value)


def test_settings_in_a_variable_may_be_hostile_too(tmp_path: Path) -> None:
    environ = {"EXT_LLMS_LLM_CONFIGS": "[" * 100_000, "SESSION_ROLES": "[" * 100_000}

    with pytest.raises(ConfigError, match=r"session.roles.*ext_llms.llm_configs|ext_llms"):
        load(tmp_path, environ=environ)


def test_only_ordinary_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(DataFileError, match="no ordinary file"):
            read_json(path)
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(DataFileError, match="codec"):
        read_yaml(tmp_path / "latin")


def test_ordinary_files_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(
        "base: &base {a: 1, text: two words}\nmore: {<<: *base, b: [1.5, true, null]}\n"
        "again: *base\nday: 2024-02-03\nlong: |\n" + "  1234567890\n" * 100
    )

    content = read_yaml(path)

    assert content["more"] == {"a": 1, "text": "two words", "b": [1.5, True, None]}
    assert content["again"] == content["base"]
    assert content["day"].year == 2024
    assert content["long"].startswith("1234567890\n1234567890")


def test_depth_is_counted_exactly() -> None:
    assert parse_json("[" * MOST_DEPTH + "]" * MOST_DEPTH)
    with pytest.raises(DataFileError, match=f"more than {MOST_DEPTH} levels"):
        parse_json("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1))
