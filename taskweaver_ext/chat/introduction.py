"""The first lines of a chat: where code works, which model answers, where code runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from taskweaver_ext.config.settings import EnvMode

NARROW_COLUMNS = 60
"""On a narrower terminal the lines are shorter."""

WELCOME = "Type a request, > for Python, ! for shell, /help for more; exit leaves."
_WELCOME_NARROW = "Ask, > Python, ! shell, /help, exit."

CODE_RUNS: Mapping[EnvMode, tuple[str, str]] = {
    EnvMode.Local: (
        "runs here, with your rights",
        "; --kernel sandbox or container confines it",
    ),
    EnvMode.Sandbox: ("runs in a sandbox", ": it changes the folder alone, without network"),
    EnvMode.Container: ("runs in a container", ": it sees the folder alone"),
    EnvMode.Gateway: ("runs behind a gateway", ", on files there"),
}
"""Where code of a session runs, in short, and what else there is to say in a line."""

CODE_RUNS_IN_FULL: Mapping[EnvMode, str] = {
    EnvMode.Local: (
        "on this machine, with your rights: checks and questions prevent accidents, not intent;"
        " --kernel sandbox and --kernel container do"
    ),
    EnvMode.Sandbox: (
        "in a sandbox on this machine: it changes the folder alone, and reads the system"
    ),
    EnvMode.Container: "in a container, which sees the folder alone",
    EnvMode.Gateway: "on a kernel behind a gateway, which may be another machine",
}

_NO_MODEL = "none is set; put llm.api_key and llm.model into taskweaver_config.json"
_NO_MODEL_NARROW = "none is set; /info says how"


def introduction(cwd: Path, model: str | None, mode: EnvMode, columns: int) -> str:
    """Return lines that fit a terminal so wide.

    Args:
        model: Which answers; None: none is set.
    """
    is_narrow = columns < NARROW_COLUMNS
    place, more = CODE_RUNS[mode]
    lines = {
        "Folder": _short_path(cwd, columns - len("Folder  ") - 1),
        "Model": model or (_NO_MODEL_NARROW if is_narrow else _NO_MODEL),
        "Code": place if is_narrow else place + more,
    }
    shown = [f"{name:<6}  {' '.join(text.split())}" for name, text in lines.items()]
    shown = [line if len(line) < columns else f"{line[: columns - 2]}…" for line in shown]
    return "\n".join([*shown, _WELCOME_NARROW if is_narrow else WELCOME])


def _short_path(path: Path, room: int) -> str:
    """A path as people write it; of a long one the end, which tells it from others."""
    text = str(path)
    home = str(Path.home())
    if text == home or text.startswith(f"{home}/"):
        text = f"~{text.removeprefix(home)}"
    return text if len(text) <= room else f"…{text[-(room - 1) :]}"
