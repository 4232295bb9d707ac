"""The languages that can be run here, with their tools and the versions of those."""

from __future__ import annotations

from pathlib import Path

from taskweaver_ext.ces.programs.languages import BUILT_IN, Language
from taskweaver_ext.ces.programs.local_site import LocalSites
from taskweaver_ext.ces.programs.tools import FoundTools, ToolMissingError, find_tools
from taskweaver_ext.machine.tool_versions import ask_version, describe_versions, find_versions

_WITH_VERSIONS = ("python", "javascript", "rust", "ruby")
"""Those of which a machine often has several."""


def describe_languages() -> list[str]:
    """Return a line for each language: what runs it, or what is missing."""
    width = max(map(len, BUILT_IN))
    lines = []
    for name in sorted(BUILT_IN):
        lines.append(f"{name:<{width}}  {_describe(BUILT_IN[name])}")
        if name in _WITH_VERSIONS and (others := _describe_versions(BUILT_IN[name])):
            lines.append(f"{'':<{width}}  {others}")
    return lines


def summarise_languages() -> str:
    """Return in one line which languages can be run, each with the version of its tool."""
    named = []
    for name, language in sorted(BUILT_IN.items()):
        try:
            path = _path_of(_find(language))
        except ToolMissingError:
            continue
        named.append(f"{name} {ask_version(path)}".strip())
    return ", ".join(named)


def _describe(language: Language) -> str:
    try:
        path = _path_of(_find(language))
    except ToolMissingError as error:
        return f"-  {str(error).removeprefix('exec: ').rpartition(' (')[0]}"
    return f"{ask_version(path) or '?'}  {path}"


def _describe_versions(language: Language) -> str:
    tool = language.tool or language.commands[0]
    found = find_versions(tool, LocalSites().environment({}), Path.cwd())
    if not found:
        return ""
    name = "node" if language.name == "javascript" else language.name
    return f"{name}@VERSION: {describe_versions(found)}"


def _find(language: Language) -> FoundTools:
    sites = LocalSites()
    with sites.use() as site:
        return find_tools(language, site, sites.environment({}), Path.cwd())


def _path_of(tools: FoundTools) -> str:
    with LocalSites().use() as site:
        return site.find_program(tools.language.commands[0], tools.environment) or ""
