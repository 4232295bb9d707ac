"""How a chat looks when it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PictureUse: TypeAlias = Literal["auto", "preview", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """What of a chat is drawn as Markdown, and how pictures are shown."""

    markdown_agent: bool = True
    """Answers of the agent."""
    markdown_python: bool = False
    """What Python code writes."""
    markdown_shell: bool = False
    """What shell commands write."""
    pictures: PictureUse = "auto"
    """auto: the terminal is asked whether it shows pictures; preview: it is not, and gets coloured
    blocks; off: a picture is named by its path alone."""
