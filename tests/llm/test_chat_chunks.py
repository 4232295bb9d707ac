"""Thinking between tags is told from the reply, wherever the pieces are cut."""

from __future__ import annotations

import pytest

from taskweaver_ext.llm.chat_chunks import ThinkTagSplitter
from taskweaver_ext.llm.chat_model import TextDelta, ThinkingDelta


def split(text: str, size: int) -> tuple[str, str]:
    """Return what is thinking and what is reply."""
    splitter = ThinkTagSplitter()
    events = [
        event
        for start in range(0, len(text), size)
        for event in splitter.feed(text[start : start + size])
    ]
    events += splitter.close()
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    return thinking, "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize(
    ("text", "thinking", "reply"),
    [
        ("<think>a < b</think>\n\n{}", "a < b", "\n\n{}"),
        ("\n<think>\n</think>hello", "\n", "hello"),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("plain", "", "plain"),
        ("<channel:code>x", "", "<channel:code>x"),
        ("<thin", "", "<thin"),
        ("  indented", "", "  indented"),
        ("say <think>x</think>", "", "say <think>x</think>"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("", "", ""),
        (" " * 300, "", " " * 300),
    ],
)
def test_thinking_at_the_beginning_is_taken_apart(
    text: str, thinking: str, reply: str, size: int
) -> None:
    assert split(text, size) == (thinking, reply)


def test_thinking_is_passed_on_as_it_comes() -> None:
    splitter = ThinkTagSplitter()

    assert list(splitter.feed("<think>first")) == [ThinkingDelta("first")]
    assert list(splitter.feed(" then")) == [ThinkingDelta(" then")]
