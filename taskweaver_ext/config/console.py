"""How a chat looks when it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PictureUse: TypeAlias = Literal["auto", "preview", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """How much of a chat is shown, what is drawn as Markdown, and how pictures are shown."""

    verbose: bool = False
    """Whether thoughts, all plans and what roles tell each other are shown."""

    markdown_agent: bool = True
    """Answers of the agent."""
    markdown_python: bool = False
    """What Python code writes."""
    markdown_shell: bool = False
    """What shell commands write."""
    pictures: PictureUse = "auto"
    """auto: the terminal is asked whether it shows pictures; preview: it is not, and gets coloured
    blocks; off: a picture is named by its path alone."""
