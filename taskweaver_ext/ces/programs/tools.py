"""Find the interpreter or compiler that runs a language at a site, in the version asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from taskweaver_ext.ces.programs.exec_errors import exec_error, explain_missing_program
from taskweaver_ext.ces.programs.languages import Language
from taskweaver_ext.ces.programs.site import ProgramSite
from taskweaver_ext.machine.interpreters import environment_of
from taskweaver_ext.machine.tool_versions import (
    ask_version,
    describe_versions,
    is_as_new_as,
    parse_version,
)


class ToolMissingError(Exception):
    """What a language needs is not there; the message reads `exec: ... (CODE)`."""


@dataclass(frozen=True, slots=True)
class FoundTools:
    """How a language is run here."""

    language: Language
    """The way that its tools allow, with the program of the version that was asked for."""
    environment: Mapping[str, str]
    """What it runs with: on its PATH that program's own folder comes first."""


def find_tools(
    language: Language, site: ProgramSite, environment: Mapping[str, str], cwd: Path
) -> FoundTools:
    """Find what runs a language.

    Raises:
        ToolMissingError: It is not there; the message says what is.
    """
    if language.version is not None:
        path = _find_version(language, site, environment, cwd)
        if "PATH" in environment:  # else it is the site's, which this would replace
            environment = environment_of(path, dict(environment))
        return FoundTools(_with_tool(language, path), environment)
    ways = (language, *language.alternatives)
    for way in ways:
        if _has_tools(way, site, environment):
            return FoundTools(way, environment)
    if len(ways) > 1:
        needs = ", ".join(map(_describe_needs, ways))
        raise ToolMissingError(
            exec_error(f"{language.name} needs one of these in PATH: {needs}", "ENOENT")
        )
    missing = next(name for name in language.commands if not site.find_program(name, environment))
    raise ToolMissingError(explain_missing_program(missing, is_there=site.has_file(missing)))


def can_run(
    language: Language, site: ProgramSite, environment: Mapping[str, str], cwd: Path
) -> bool:
    """Whether what runs a language is there."""
    try:
        find_tools(language, site, environment, cwd)
    except ToolMissingError:
        return False
    return True


def _has_tools(language: Language, site: ProgramSite, environment: Mapping[str, str]) -> bool:
    paths = [site.find_program(command, environment) for command in language.commands]
    if not all(paths):
        return False
    if not language.oldest:
        return True
    # Elsewhere a program cannot be asked before it is to run.
    is_here = site.find_versions(language.command, {}, Path()) is not None
    return is_here and is_as_new_as(ask_version(str(paths[-1])), language.oldest)


def _describe_needs(language: Language) -> str:
    oldest = f" {language.oldest} or newer" if language.oldest else ""
    return " with ".join(language.commands) + oldest


def _find_version(
    language: Language, site: ProgramSite, environment: Mapping[str, str], cwd: Path
) -> str:
    tool, wanted = language.tool or language.commands[0], language.version or ""
    if os.path.dirname(wanted):
        path = os.path.expanduser(wanted)
        if site.find_program(path, environment) is None:
            raise ToolMissingError(explain_missing_program(path, is_there=site.has_file(path)))
        return path
    version = parse_version(wanted)
    if version is None or language.alternatives:
        what = f"'{wanted}' is no version; write it like {language.name}@3.12"
        if language.alternatives:
            what = f"{language.name} is run by several tools, and has no versions of its own"
        raise ToolMissingError(exec_error(what, "VERSION_INVALID"))
    versions = site.find_versions(tool, environment, cwd)
    if versions is None:
        if path_there := site.find_program(f"{tool}{version}", environment):
            return path_there
        raise ToolMissingError(explain_missing_program(f"{tool}{version}", is_there=False))
    for one in versions:
        if one.matches(version):
            return one.path
    there = describe_versions(versions)
    what = f"{tool} {version} not found; " + (f"there are {there}" if there else "there is none")
    raise ToolMissingError(exec_error(what, "ENOENT"))


def _with_tool(language: Language, path: str) -> Language:
    """The language with one of its programs in place of the one that the PATH would give."""
    if language.build:
        return replace(language, build=(path, *language.build[1:]))
    return replace(language, command=path)
