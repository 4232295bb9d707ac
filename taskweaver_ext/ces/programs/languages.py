"""Which command runs a language: many are known, others are added by configuration.

Each of them is run alike by `exec`, `ProcessExecutor`, `ExecutorRegistry` and the agent, where its
tools are there; `name@version`, as in `python@3.12`, asks for one version of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from taskweaver_ext.errors import ConfigError

CODE = "{code}"
FILE = "{file}"
PROGRAM = "{program}"
FOLDER = "{folder}"

_LONGEST_ARGUMENT = 100_000
"""Bytes; the system refuses more than 128 KiB in one argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How code of one language is run.

    In arguments and in the build command, `{file}` stands for a file that holds the
    code, `{folder}` for the folder it is in, and `{program}` for the program that
    the build is to make there; an argument that is `{code}` is the code itself.
    """

    name: str
    command: str
    """A program on the PATH, one version of it by its absolute path, or `{program}`."""
    arguments: tuple[str, ...] = (FILE,)
    file_arguments: tuple[str, ...] = (FILE,)
    """Used instead of `arguments` for code that does not fit into an argument."""
    suffix: str = ""
    """How the name of the file ends, with its dot."""
    build: tuple[str, ...] = ()
    """A command that is run first; empty for languages that need none."""
    tool: str = ""
    """What `name@version` chooses a version of; by default the first command."""
    version: str | None = None
    """The version that was asked for."""
    oldest: str = ""
    """The oldest version of the command that can do this; empty: any."""
    alternatives: tuple[Language, ...] = ()
    """Other ways to run it, tried in order where tools of this one are missing."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The programs that have to be there."""
        return tuple(name for name in (*self.build[:1], self.command) if name != PROGRAM)

    def arguments_for(self, code: str) -> tuple[str, ...]:
        """The arguments to run this code with, placeholders and all."""
        if CODE not in self.arguments:
            return self.arguments
        fits = len(code) <= _LONGEST_ARGUMENT and "\0" not in code
        if fits and (code.isascii() or _encoded_size(code) <= _LONGEST_ARGUMENT):
            return self.arguments
        return self.file_arguments

    def needs_file(self, code: str) -> bool:
        """Whether this code has to be in a file to be run."""
        return bool(self.build) or CODE not in self.arguments_for(code)


def _encoded_size(code: str) -> int:
    try:
        return len(code.encode())
    except UnicodeEncodeError:  # lone surrogates fit into no argument
        return _LONGEST_ARGUMENT + 1


def _compiled(name: str, suffix: str, *build: str) -> Language:
    return Language(name=name, command=PROGRAM, arguments=(), suffix=suffix, build=build)


BUILT_IN: Mapping[str, Language] = MappingProxyType(
    {
        "bash": Language(name="bash", command="bash", arguments=("-c", CODE), suffix=".sh"),
        "javascript": Language(
            name="javascript",
            command="node",
            arguments=("-e", CODE),
            # Not `node FILE`: modules are to be found from the working directory, as with -e.
            file_arguments=(
                "-e",
                "(0, eval)(require('fs').readFileSync(process.argv.pop(), 'utf8'))",
                FILE,
            ),
            suffix=".js",
        ),
        "python": Language(
            name="python",
            command="python3",
            arguments=("-c", CODE),
            file_arguments=(
                "-c",
                "exec(compile(open(__import__('sys').argv.pop(), 'rb').read(),"
                " '<string>', 'exec'))",
                FILE,
            ),
            suffix=".py",
            tool="python",
        ),
        "typescript": Language(
            name="typescript",
            command="tsx",
            suffix=".ts",
            alternatives=(
                Language(
                    name="typescript", command="deno", arguments=("run", "-A", FILE), suffix=".ts"
                ),
                Language(name="typescript", command="bun", arguments=("run", FILE), suffix=".ts"),
                Language(name="typescript", command="ts-node", suffix=".ts"),
                Language(
                    name="typescript",
                    command="node",
                    arguments=("--experimental-strip-types", "--no-warnings", FILE),
                    suffix=".ts",
                    oldest="22.6",
                ),
                Language(
                    name="typescript",
                    command="node",
                    arguments=(f"{FOLDER}/main.js",),
                    suffix=".ts",
                    build=(
                        *("tsc", "--target", "es2022", "--module", "commonjs"),
                        *("--outDir", FOLDER, FILE),
                    ),
                ),
            ),
        ),
        "rust": _compiled("rust", ".rs", "rustc", "--edition", "2021", "-o", PROGRAM, FILE),
        "go": _compiled("go", ".go", "go", "build", "-o", PROGRAM, FILE),
        "c": _compiled("c", ".c", "cc", "-o", PROGRAM, FILE, "-lm"),
        "cpp": _compiled("cpp", ".cpp", "c++", "-o", PROGRAM, FILE),
        "java": Language(name="java", command="java", suffix=".java"),
        "ruby": Language(name="ruby", command="ruby", suffix=".rb"),
        "perl": Language(name="perl", command="perl", suffix=".pl"),
        "php": Language(name="php", command="php", suffix=".php"),
        "lua": Language(name="lua", command="lua", suffix=".lua"),
        "r": Language(name="r", command="Rscript", suffix=".R"),
        "julia": Language(name="julia", command="julia", suffix=".jl"),
    }
)

EVERYWHERE = ("bash", "javascript", "python")
"""Those that a place is expected to have which cannot be looked into."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "py": "python",
        "python3": "python",
        "sh": "bash",
        "shell": "bash",
        "js": "javascript",
        "node": "javascript",
        "ts": "typescript",
        "rs": "rust",
        "golang": "go",
        "c++": "cpp",
        "cxx": "cpp",
        "rb": "ruby",
        "pl": "perl",
    }
)


def split_version(name: str) -> tuple[str, str | None]:
    """A language as it was called, and the version that stands behind its `@`, if one does."""
    language, at, version = name.partition("@")
    return language, version.strip() if at else None


def canonical_name(name: str) -> str:
    """The name of a language, whatever it was called by; with the version it was called with."""
    language, version = split_version(name)
    lowered = language.strip().lower()
    known = ALIASES.get(lowered, lowered)
    return known if version is None else f"{known}@{version}"


def find_language(name: str, configured: Mapping[str, Language] | None = None) -> Language | None:
    """The language of that name; what is configured comes before what is built in.

    Args:
        name: Any name of it, `name@version`, or `name@/path/of/the/program`.
    """
    language, version = split_version(canonical_name(name))
    known = {**BUILT_IN, **by_canonical_name(configured or {})}.get(language)
    return known if known is None or version is None else replace(known, version=version)


def by_canonical_name(configured: Mapping[str, Language]) -> dict[str, Language]:
    """Languages under the names that `canonical_name` gives, whatever they were configured as."""
    return {canonical_name(name): language for name, language in configured.items()}


def language_from_settings(name: str, settings: Mapping[str, Any]) -> Language:
    """Make a language from a configuration file's entry.

    Raises:
        ConfigError: The entry has mistakes; the message names all of them.
    """
    mistakes = [
        f"unknown setting {key!r}"
        for key in settings
        if key not in ("command", "arguments", "file_arguments", "suffix", "build")
    ]
    for key in ("command", "suffix"):
        if not isinstance(settings.get(key, ""), str):
            mistakes.append(f"{key!r} must be a text")
    for key in ("arguments", "file_arguments", "build"):
        value = settings.get(key, [])
        if isinstance(value, str) or not all(isinstance(item, str) for item in _items(value)):
            mistakes.append(f"{key!r} must be a list of texts")
    if not settings.get("command"):
        mistakes.append("'command' is missing")
    if settings.get("command") == PROGRAM and not settings.get("build"):
        mistakes.append(f"'command' is {PROGRAM}, but there is no 'build' that makes it")
    if mistakes:
        raise ConfigError(f"The language {name!r} is not configured well: {'; '.join(mistakes)}.")
    lists: dict[str, Any] = {
        key: tuple(settings[key])
        for key in ("arguments", "file_arguments", "build")
        if key in settings
    }
    return Language(
        name=canonical_name(name),
        command=settings["command"],
        suffix=settings.get("suffix", ""),
        **lists,
    )


def _items(value: object) -> list[object]:
    """The items of a list; for anything else, something that is not a text."""
    return list(value) if isinstance(value, list | tuple) else [None]
