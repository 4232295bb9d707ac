"""Which command runs a language: a few are known, others are added by configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
        ),
    }
)

C = Language(
    name="c", command=PROGRAM, arguments=(), suffix=".c", build=("cc", "-o", PROGRAM, FILE)
)
RUST = Language(
    name="rust",
    command=PROGRAM,
    arguments=(),
    suffix=".rs",
    build=("rustc", "--edition", "2021", "-o", PROGRAM, FILE),
)
TYPESCRIPT = Language(
    name="typescript",
    command="node",
    arguments=(f"{FOLDER}/main.js",),
    suffix=".ts",
    build=("tsc", "--target", "es2022", "--module", "commonjs", "--outDir", FOLDER, FILE),
)
"""These three are ready to be added; they need tools that many machines lack."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {"py": "python", "sh": "bash", "js": "javascript", "node": "javascript"}
)


def canonical_name(name: str) -> str:
    """The name of a language, whatever it was called by."""
    lowered = name.strip().lower()
    return ALIASES.get(lowered, lowered)


def find_language(name: str, configured: Mapping[str, Language] | None = None) -> Language | None:
    """The language of that name; what is configured comes before what is built in."""
    known = {**BUILT_IN, **by_canonical_name(configured or {})}
    return known.get(canonical_name(name))


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
    lists = {
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
