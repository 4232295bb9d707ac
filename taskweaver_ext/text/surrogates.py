"""Text that arrives in pieces, with surrogate pairs joined that were cut in two.

JSON can carry one half of a pair at a time, and some servers cut a reply there. A
half without its other one cannot be stored or sent: it becomes U+FFFD.
"""

from __future__ import annotations


class SurrogateJoiner:
    """Pass text on whole, piece by piece."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the next piece; the first half of a pair waits for the second."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _mended(text)

    def close(self) -> str:
        """Return what is left of a half that waits in vain."""
        text, self._half = self._half, ""
        return _mended(text)


def _mended(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
