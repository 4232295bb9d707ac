"""Show characters that hide, reorder or pile up instead of letting a terminal obey them.

Pure: text in, text out, in linear time, and the same result wherever the text was split.

What has no width can carry words that nobody sees, what reorders can make code look like other
code, and marks without end grow over the lines around them. Each is shown by its number, as in
`<U+202E>`, wherever no writing system needs it: joiners stay between letters that join and in
emoji, one variation selector stays behind its character, tags stay in flags, and so do as many
marks as any script puts on one letter.
"""

from __future__ import annotations

import re
import unicodedata

MAX_MARKS = 6
"""So many marks without a width may stand on one character; Burmese needs five."""
MAX_FLAG_TAGS = 7
"""Six letters name a region (England: gbeng), one ends the name."""

_JOINERS = "\u200b\u200c\u200d\u180e"
"""Break or join words and letters: Khmer, Persian, Hindi, Mongolian, emoji."""
_JOINING_CATEGORIES = ("Lo", "Lm", "So", "Sk")
"""Letters without capitals, and pictures; no word of Latin letters needs a joiner."""
_VISIBLE_FORMATS = "\u00ad\u061c\u200e\u200f\u06dd\u070f\u08e2"
"""Have a shape, or are the plain marks of a direction; so do all numeric signs of Arabic."""
_FLAG = "\U0001f3f4"
_TAGS = ("\U000e0020", "\U000e007f")

# Whatever may be a mark or invisible: no letter, digit or space, nor what is common beside them.
_LOOKED_AT = re.compile(
    "(?:[^\\w\\s\x00-\u02ff\u2010-\u2027\u2030-\u205e\u2070-\u20cf\u2100-\u2bff\u2e00-\u2e7f"
    "\u3001-\u3029\u3030-\u303f\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uffef\ufffc\ufffd\ud800-\udfff"
    "\U0001f000-\U0001faff]|[\u2028\u2029])+"
)


class HiddenCharacters:
    """Pass on text, with what would hide in it shown."""

    def __init__(self) -> None:
        self._begin("\n")

    def feed(self, text: str) -> str:
        """Take the next piece of a text and return what may be shown of it."""
        if text.isascii():
            if text:
                self._begin(text[-1])
            return text
        shown: list[str] = []
        position = 0
        for run in _LOOKED_AT.finditer(text):
            if run.start() > position:
                shown.append(text[position : run.start()])
                self._begin(text[run.start() - 1])
            shown += map(self._judge, run.group())
            position = run.end()
        if position < len(text):
            shown.append(text[position:])
            self._begin(text[-1])
        return "".join(shown)

    def _begin(self, base: str) -> None:
        """What follows stands on another character."""
        self._base = base
        self._marks = 0
        self._tags = 0
        self._is_varied = False
        self._is_joined = False

    def _judge(self, character: str) -> str:
        category = unicodedata.category(character)
        if _is_variation_selector(character):
            is_kept, self._is_varied = not self._is_varied, True
        elif category in ("Mn", "Me"):
            self._marks += 1
            is_kept = self._marks <= MAX_MARKS
        elif character in _JOINERS:
            is_kept, self._is_joined = not self._is_joined and self._may_join(), True
        elif _TAGS[0] <= character <= _TAGS[1]:
            self._tags += 1
            is_kept = self._base == _FLAG and self._tags <= MAX_FLAG_TAGS
        elif _is_hidden(character, category):
            is_kept = False
        else:
            is_kept = True
            if category != "Mc":
                self._begin(character)
        if is_kept:
            return character
        self._base = ">"  # what joins or flies a flag would do so with what is shown here
        return f"<U+{ord(character):04X}>"

    def _may_join(self) -> bool:
        return unicodedata.category(self._base) in _JOINING_CATEGORIES and not self._base.isascii()


def _is_variation_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _is_hidden(character: str, category: str) -> bool:
    if category == "Cf":
        has_shape = "\u0600" <= character <= "\u0605" or "\U000110bd" <= character <= "\U0001343f"
        return not has_shape and character not in _VISIBLE_FORMATS
    return category in ("Zl", "Zp") or "\U000e0000" <= character <= "\U000e0fff"
