"""Texts of a session as Markdown that stays where it is put.

What people, models and programs write may hold fences, HTML and half of either. Code and output go
into fences that are longer than any inside; words go into a quotation, which ends what is left
open in it, and HTML in them is shown, not obeyed.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from taskweaver_ext.conversation import UNKNOWN_ROLE, AttachmentType
from taskweaver_ext.session.blocks import Attached, Message, SessionNotice
from taskweaver_ext.session.export.source import notice_label, plain

_HIDDEN = {
    AttachmentType.init_plan,
    AttachmentType.reply_type,
    AttachmentType.shared_memory_entry,
    AttachmentType.current_plan_step,
}
"""What repeats others, or is for programs."""
_ORDINARY_STOPS = ("InProcess", "Completed")
"""The stop states that go without saying."""
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_PARSER = MarkdownIt("commonmark")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"((?<![`\\])`+(?!`))(.*?)((?<!`)\1(?!`))")


def fenced(text: str, language: str = "") -> str:
    """A block of code that nothing in the text can end."""
    text = plain(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    word = re.sub(r"[^A-Za-z0-9+#_.-]", "", language)
    return f"{fence}{word}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{fence}"


def inline_code(text: str) -> str:
    """A short text as code on one line, which nothing in it can end."""
    line = " ".join(plain(text).split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    ticks = "`" * (longest + 1)
    return f"{ticks} {line} {ticks}" if longest else f"`{line or ' '}`"


def quoted(text: str) -> str:
    """Words that may be Markdown, as a quotation that ends what they leave open."""
    lines = without_html(plain(text)).strip("\n").split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def without_html(text: str) -> str:
    """Escape what would be HTML, and leave code as it is where it surely is code."""
    if not _TAG.search(text):
        return text
    careful = _escaped_outside_code(text)
    has_html = any(
        token.type == "html_block" or any(one.type == "html_inline" for one in token.children or ())
        for token in _PARSER.parse(careful)
    )
    return _TAG.sub("&lt;", text) if has_html else careful


def is_for_readers(attached: Attached) -> bool:
    """Whether a part of a post says something that others do not."""
    return attached.type not in _HIDDEN and attached.text not in _ORDINARY_STOPS


def message_markdown(message: Message) -> str:
    """What a person or a role said, with its thoughts and plans."""
    who = f"**{escaped_words(message.role)}**"
    if message.send_to not in (UNKNOWN_ROLE, "", "User") and message.role != "User":
        who += f" → {escaped_words(message.send_to)}"
    parts = [who]
    for attached in message.attachments:
        if is_for_readers(attached):
            parts += [f"*{attached.type.value.replace('_', ' ')}*", quoted(attached.text)]
    if message.context:
        parts += ["*sent along*", fenced(message.context)]
    if message.is_error:
        parts.append("**Error**")
    if message.text:
        parts.append(quoted(message.text))
    return "\n\n".join(parts)


def notice_markdown(notice: SessionNotice) -> str:
    """Something to know of the session."""
    return f"**{notice_label(notice)}**\n\n{quoted(notice.text)}"


def escaped_words(text: str) -> str:
    """A name or a title on one line, without any meaning in Markdown."""
    line = " ".join(plain(text).split())
    return re.sub(r"([\\`*_{}\[\]<>#|&~])", r"\\\1", line)


def _escaped_outside_code(text: str) -> str:
    fence = ""
    lines = []
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            is_end = found is not None and found[1].startswith(fence) and not line.strip(" `~")
            fence = "" if is_end else fence
            lines.append(line)
        elif found:
            fence = found[1]
            lines.append(line)
        else:
            lines.append(_escaped_line(line))
    return "\n".join(lines)


def _escaped_line(line: str) -> str:
    parts, position = [], 0
    for span in _CODE_SPAN.finditer(line):
        parts += [_TAG.sub("&lt;", line[position : span.start()]), span[0]]
        position = span.end()
    return "".join([*parts, _TAG.sub("&lt;", line[position:])])
