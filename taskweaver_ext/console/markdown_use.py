"""What of a chat is drawn as Markdown: the agent's answers, and what code writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MarkdownUse:
    """A person's wishes for what comes; changed by `/markdown`."""

    agent: bool = True
    python: bool = False
    shell: bool = False

    def is_on_for(self, language: str) -> bool:
        """Whether the output of code in a language is drawn as Markdown."""
        return self.shell if language in ("bash", "sh", "shell") else self.python

    def describe(self) -> str:
        """Say what is drawn as Markdown, and what as it is."""
        states = {"agent": self.agent, "python": self.python, "shell": self.shell}
        return ", ".join(f"{name} {'on' if is_on else 'off'}" for name, is_on in states.items())
