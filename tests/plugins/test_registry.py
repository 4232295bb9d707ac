"""Plugins are read from YAML, one by one; a bad file harms no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taskweaver_ext import plugins
from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.inside.kernel import plugin_api
from taskweaver_ext.plugins.registry import PluginRegistry, read_plugin

OURS = Path(__file__).resolve().parents[2] / "project" / "plugins"

SEARCH = """
name: search
description: >-
  Look for words
  in texts.
parameters:
  - name: limit
    type: int
    description: how many at most
  - name: words
    type: str
    required: true
    description: what to look for
returns:
  - name: found
    type: DataFrame
  - name: note
    type: str
examples: found, note = search("a", 3)
code: search_engine
configurations:
  url: http://localhost
"""


def write(folder: Path, name: str, text: str, source: str = "") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    (folder / f"{source or name}.py").write_text("")
    return path


def test_a_plugin_is_read_with_all_its_fields(tmp_path: Path) -> None:
    entry = read_plugin(write(tmp_path, "search", SEARCH, "search_engine"))

    assert entry.source_path == tmp_path / "search_engine.py"
    assert entry.signature == ("def search(words: str, limit: int = None) -> tuple[DataFrame, str]")
    assert entry.enabled
    assert not entry.required
    assert not entry.plugin_only
    assert entry.configurations == {"url": "http://localhost"}
    description = entry.describe()
    assert "Look for words in texts." in description
    assert 'found, note = search("a", 3)' in description
    assert "limit: how many at most" in description


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: [", "cannot be read as YAML"),
        ("- a", "must hold a mapping"),
        ("description: x", "name must be text"),
        ("name: bad", "description must be text"),
        ("name: import\ndescription: x", "cannot be called"),
        ("name: bad\ndescription: x\nparameters: 5", "must be a list"),
        ("name: bad\ndescription: x\nenabled: perhaps", "must be true or false"),
        ("name: bad\ndescription: x\ncode: ../other", "beside it"),
        ("name: elsewhere\ndescription: x", "no elsewhere.py beside it"),
        ("name: !!python/object/apply:os.system [ls]\ndescription: x", "cannot be read"),
        ("name: good\ndescription: twice", "another plugin"),
        ("name: bad\ndescription: x\nconfigurations: {since: 2020-01-01}", "quotation marks"),
    ],
)
def test_a_bad_file_is_named_and_the_others_load(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, "bad", text)
    write(tmp_path, "a_file", "name: good\ndescription: works", "good")

    registry = PluginRegistry.load(tmp_path)

    assert [plugin.name for plugin in registry] == ["good"]
    [problem] = registry.problems
    assert str(tmp_path / "bad.yaml") in problem
    assert re.search(complaint, problem)


def test_disabled_plugins_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "unused", "name: unused\ndescription: x\nenabled: false")
    write(tmp_path, "only", "name: only\ndescription: x\nplugin_only: true")
    write(tmp_path, "used", "name: used\ndescription: x")

    registry = PluginRegistry.load(tmp_path)

    assert [plugin.name for plugin in registry] == ["only", "used"]
    assert [plugin.name for plugin in registry.without_plugin_only()] == ["used"]
    assert registry.problems == ()
    assert list(PluginRegistry.load(tmp_path / "missing")) == []


def test_the_plugin_api_is_the_kernels() -> None:
    for name in plugins.__all__:
        assert getattr(plugins, name) is getattr(plugin_api, name)


@pytest.mark.parametrize("name", ["period_scan", "line_chart"])
def test_our_plugins_pass_their_own_tests(environment: Environment, name: str) -> None:
    registry = PluginRegistry.load(OURS)
    assert registry.problems == ()
    [entry] = [plugin for plugin in registry if plugin.name == name]

    environment.load_plugin("s1", name, entry.read_source(), entry.configurations)

    environment.test_plugin("s1", name)


def test_a_chart_is_drawn_also_without_matplotlib(environment: Environment) -> None:
    entry = read_plugin(OURS / "line_chart.yaml")
    environment.load_plugin("s1", "line_chart", entry.read_source(), entry.configurations)
    environment.execute_code("s1", "import sys; sys.modules['matplotlib'] = None")

    result = environment.execute_code("s1", "line_chart({'<a>': [1, 5, 2]}, 'T & T')")

    assert result.is_success
    assert any("matplotlib is not installed" in message for _, _, message in result.log)
    [artifact] = result.artifact
    text = Path(artifact.file_name).read_text()
    assert text.startswith("<svg")
    assert "&lt;a&gt;" in text
    assert "T &amp; T" in text
