"""What people ran themselves, told to the agent with their next request."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskweaver_ext.ces.results import ExecutionResult
from taskweaver_ext.text.terminal import fold
from taskweaver_ext.text.truncation import shorten_middle

MAX_BLOCK_CHARS = 4000
MAX_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """Something that was run, and what it wrote."""

    language: str
    code: str
    status: str
    output: str

    @classmethod
    def of(cls, language: str, result: ExecutionResult) -> ContextBlock:
        """Take from a result what a model should know."""
        parts = ["".join(result.stdout), "".join(result.stderr), result.output, result.error or ""]
        output = fold("\n".join(part.rstrip("\n") for part in parts if part.strip()))
        shortened = shorten_middle(output, MAX_BLOCK_CHARS).text
        return cls(language, result.code, result.status.value, shortened)

    def text(self) -> str:
        """Say it to a model."""
        return (
            f"I ran this myself ({self.language}, {self.status}):\n"
            f"```{self.language}\n{self.code}\n```\nOutput:\n```\n{self.output}\n```"
        )


@dataclass(slots=True)
class ContextBlocks:
    """What the agent has still to be told."""

    is_collecting: bool = False
    """Whether `/auto` is on."""
    waiting: list[ContextBlock] = field(default_factory=list)
    told: list[ContextBlock] = field(default_factory=list)

    def add(self, language: str, result: ExecutionResult) -> bool:
        """Take note of something that was run; False when nobody wants to know."""
        if self.is_collecting:
            self.waiting = [*self.waiting, ContextBlock.of(language, result)][-MAX_BLOCKS:]
        return self.is_collecting

    def put_before(self, request: str) -> str:
        """Return the request with everything that waits before it, which is told then."""
        texts = [block.text() for block in self.waiting]
        self.told += self.waiting
        self.waiting = []
        return "\n\n".join([*texts, request])

    def clear(self) -> None:
        """Forget everything."""
        self.waiting = []
        self.told = []
