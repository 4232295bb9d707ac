"""Mask secrets in text: whole texts, JSON values, and streams that cut a secret anywhere.

    redactor = Redactor(["sk-4f5e6d7c8b9a"], patterns=["ghp_[A-Za-z0-9]{36}"])
    redactor.redact("key: sk-4f5e6d7c8b9a")     # "key: [masked]"

    stream = redactor.stream()
    stream.feed("key: sk-4f")                   # "key: "; the rest may begin a secret
    stream.feed("5e6d7c8b9a\\n")                 # "[masked]\\n"
    stream.flush(), stream.close()              # see `RedactedStream`

Pure, and linear in the length of the text whatever the secrets are. Every character that is part
of a secret is masked, however occurrences overlap; occurrences that overlap or touch become one
mask. The mask is the same for all: it tells neither which secret stood there nor how long it was.

A secret is known in the spellings that programs print it in: as it is, in JSON, in Python's `repr`
of text and bytes, in URLs and HTML, and in Base64 (also in the middle of other encoded data, such
as the header of a basic authentication). Its longer lines are masked one by one, because programs
indent and wrap what has several. What code disguises on purpose (reversed, encrypted, one letter
a line) is not found: masking prevents accidents.
"""

from __future__ import annotations

import base64
import html
import json
import re
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "[masked]"

SHORTEST_SECRET = 6
"""Shorter values are ordinary words and numbers; masking them would garble everything."""

SHORTEST_LINE = 16
"""Shorter lines of a secret with several are not masked without the others."""

LONGEST_PATTERN = 4096
"""How many characters a match of a pattern can have."""

LONGEST_REPETITION = 1024
"""Where `*`, `+` and `{n,}` end."""

_LONGEST_SOURCE = 200

_LONGEST_WORD = 256
"""A longer spelling is masked in pieces of this length, so that less has to be held back."""

_HAS_MASK = -1
"""Where something begins whose mask was passed on already: secrets that touch it add to it."""

_GRAM_BYTES = 4
_SMALL_TEXT = 1024
"""Shorter texts are walked through directly: looking for grams would not pay."""


class Redactor:
    """Secrets and patterns, prepared once; shared by any number of texts, streams and threads."""

    def __init__(self, secrets: Iterable[str], patterns: Iterable[str] = ()) -> None:
        """Prepare to mask the secrets in all spellings, and what the patterns match.

        Args:
            secrets: Those shorter than `SHORTEST_SECRET` are ignored.
            patterns: Regular expressions without groups, alternatives and anchors: characters,
                classes and escapes such as `\\d`, each with `?`, `*`, `+`, `{n}` or `{n,m}`. A
                repetition takes what it can and gives nothing back, so that time stays linear.

        Raises:
            ValueError: A pattern cannot be used; the message says why.
        """
        words = {word for secret in secrets for word in _words(secret)}
        self._automaton = _Automaton(sorted(words)) if words else None
        self._patterns = tuple(_Pattern(pattern) for pattern in patterns)

    def __bool__(self) -> bool:
        """Whether there is anything to mask."""
        return self._automaton is not None or bool(self._patterns)

    def redact(self, text: str) -> str:
        """Return the text with its secrets masked."""
        stream = self.stream()
        return stream.feed(text) + stream.close()

    def redact_json(self, value: Any) -> Any:  # noqa: ANN401  any JSON value
        """Return a copy of a JSON value whose texts and keys have their secrets masked.

        Keys that become the same are numbered, so that nothing else is lost.
        """
        if not self:
            return value
        top: list[Any] = [None]
        pending: list[tuple[Any, Any, Any]] = [(value, top, 0)]  # no recursion: depth is data
        while pending:
            source, target, place = pending.pop()
            if isinstance(source, str):
                target[place] = self.redact(source)
            elif isinstance(source, dict):
                keys = self._keys(source)
                target[place] = dict.fromkeys(keys)
                pending += zip(source.values(), [target[place]] * len(keys), keys, strict=True)
            elif isinstance(source, list | tuple):
                target[place] = [None] * len(source)
                places = range(len(source))
                pending += zip(source, [target[place]] * len(source), places, strict=True)
            else:
                target[place] = source
        return top[0]

    def stream(self) -> RedactedStream:
        """Return a new stream, for one sequence of pieces that belong together."""
        return RedactedStream(self._automaton, self._patterns)

    def _keys(self, source: dict[Any, Any]) -> list[Any]:
        taken = set(source)
        keys = []
        for key in source:
            masked = self.redact(key) if isinstance(key, str) else key
            if masked != key:
                name, number = masked, 1
                while masked in taken:
                    number += 1
                    masked = f"{name} {number}"
                taken.add(masked)
            keys.append(masked)
        return keys


class RedactedStream:
    """Pass text on piece by piece; what the pieces are makes no difference to the result.

    Only a tail that may be the beginning of a secret is held back, usually nothing. It comes out
    with the next `feed` that decides, and at the latest with `close`. Because a program may stop
    in the middle (a prompt that ends in "https://" when a secret begins so), a caller that shows
    live output calls `flush` when `is_holding` and nothing came for as long as a reader may wait,
    such as the interval in which it batches: `feed` what came, then `flush` once an interval has
    passed without anything new.

    One thread at a time.
    """

    def __init__(self, automaton: _Automaton | None, patterns: tuple[_Pattern, ...]) -> None:
        self._automaton = automaton
        self._patterns = patterns
        self._held = ""
        self._masked: list[tuple[int, int]] = []
        """What is masked of `_held`, in order."""
        self._state = 0
        self._settled = [0] * len(patterns)
        """For each pattern, the first place in `_held` where a match may still begin."""

    @property
    def is_holding(self) -> bool:
        """Whether something waits for the next piece."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Return what is certain now that this piece has come."""
        start, text = len(self._held), self._held + text
        cut = len(text)
        if self._automaton is not None:
            found: list[tuple[int, int]] = []
            self._state = self._automaton.scan(text, start, self._state, found)
            self._add(found)
            cut -= self._automaton.depth[self._state]
        for number, pattern in enumerate(self._patterns):
            found = []
            self._settled[number] = pattern.scan(text, self._settled[number], found)
            self._add(found)
        return self._pass_on(text, max(0, min(cut, *self._settled, len(text))))

    def flush(self) -> str:
        """Return what was held back, since no more may come.

        Still held is what already is half of a secret or more: no pause in the output makes more
        than the first half of a secret visible, and if the rest comes it is masked.
        """
        text, cut = self._held, len(self._held)
        if self._automaton is not None:
            cut -= self._automaton.depth[self._automaton.mostly_there(self._state)]
        for number, pattern in enumerate(self._patterns):
            found: list[tuple[int, int]] = []
            self._settled[number] = pattern.settle(text, self._settled[number], found)
            self._add(found)
            cut = min(cut, self._settled[number])
        return self._pass_on(text, max(0, cut))

    def close(self) -> str:
        """Return all that is left; a secret that is not complete is none."""
        for number, pattern in enumerate(self._patterns):
            found: list[tuple[int, int]] = []
            pattern.finish(self._held, self._settled[number], found)
            self._add(found)
        self._state, self._settled = 0, [0] * len(self._patterns)
        rest = self._pass_on(self._held, len(self._held))
        self._masked = []
        return rest

    def _add(self, found: list[tuple[int, int]]) -> None:
        """Merge what was found into what is masked."""
        if not found:
            return
        merged: list[tuple[int, int]] = []
        # What begins before 0 was passed on before it was known to begin a secret.
        found = [(max(start, 0), end) for start, end in found]
        for start, end in sorted(self._masked + found):
            if merged and start <= merged[-1][1]:
                start, end = merged[-1][0], max(end, merged.pop()[1])
            merged.append((start, end))
        self._masked = merged

    def _pass_on(self, text: str, cut: int) -> str:
        """Return the text before `cut`, masked, with the whole of a mask there; hold the rest."""
        pieces: list[str] = []
        kept: list[tuple[int, int]] = []
        at = 0
        for start, end in self._masked:
            if start > cut:
                kept.append((start - cut, end - cut))
                continue
            if start >= 0:
                pieces += text[at:start], MASK
            at = end
            if end >= cut:
                cut = max(cut, min(end, *self._settled, end))
                kept.append((_HAS_MASK, end - cut))
        pieces.append(text[at:cut])
        self._held, self._masked = text[cut:], kept
        self._settled = [max(0, place - cut) for place in self._settled]
        return "".join(pieces)


class _Automaton:
    """All words as one automaton of Aho and Corasick: one step for each character of a text.

    Its states lie one after another along each word, so that a state's next one is mostly the
    next number, and a few bytes hold a state. Texts that hold no word are not walked through:
    see `_Grams`.
    """

    def __init__(self, words: list[str]) -> None:
        self.depth = array("l", [0])
        """By state: how many characters at the end of the text may begin a word."""
        self._spine = [""]
        """By state: the character that leads to the next number."""
        self._branches: dict[int, dict[str, int]] = {}
        """The other characters that lead on, by state; few have any."""
        self._fallback = array("l", [0])
        """By state: the longest other beginning of a word that the text ends with."""
        self._length = array("l", [0])
        """By state: the length of the longest word that the text ends with, or 0."""
        self._goal = array("l", [sys.maxsize])
        """By state: the length of the shortest word that begins so."""
        self._longest = max(map(len, words))
        self._first = re.compile("[" + re.escape("".join({word[0] for word in words})) + "]")
        self._grams = _Grams(words)
        parents = array("l", [0])
        for word in words:
            self._insert(word, parents)
        self._link(parents)

    def scan(self, text: str, at: int, state: int, found: list[tuple[int, int]]) -> int:
        """Walk from `at` to the end of the text, add what is found, and return the last state."""
        if len(text) - at < _SMALL_TEXT:
            return self._walk(text, at, state, found)[1]
        if state:
            at, state = self._walk(text, at, state, found, until_nothing=True)
        tail = len(text) - self._longest + 1
        """No beginning of a word that is not yet complete begins before."""
        following = _places(text, at, self._grams.candidates(text[at:]))
        while following:
            nearest = min(following.values())
            start = max(at, min(nearest, tail))
            at, state = self._walk(text, start, 0, found, until_nothing=nearest < tail)
            behind = [word for word, place in following.items() if place < at]
            for word in behind:
                del following[word]
            following |= _places(text, at, behind)
        if at < len(text):
            at, state = self._walk(text, max(at, tail), 0, found)
        return state

    def mostly_there(self, state: int) -> int:
        """Return the longest beginning of a word that is half of it at least; 0 without one."""
        while state and 2 * self.depth[state] < self._goal[state]:
            state = self._fallback[state]
        return state

    def _walk(
        self,
        text: str,
        at: int,
        state: int,
        found: list[tuple[int, int]],
        *,
        until_nothing: bool = False,
    ) -> tuple[int, int]:
        """Step through the text, to its end or to where no word may have begun."""
        spine, branches = self._spine, self._branches
        fallback, length = self._fallback, self._length
        end = len(text)
        while at < end:
            if not state:
                first = self._first.search(text, at)
                if first is None:
                    return end, 0
                at = first.start()
            sign = text[at]
            at += 1
            while True:
                if spine[state] == sign:
                    state += 1
                    break
                others = branches.get(state)
                if others is not None and sign in others:
                    state = others[sign]
                    break
                if not state:
                    break
                state = fallback[state]
            if length[state]:
                start = at - length[state]
                while found and start <= found[-1][1]:
                    start = min(start, found.pop()[0])
                found.append((start, at))
            if until_nothing and not state:
                break
        return at, state

    def _step(self, state: int, sign: str) -> int:
        """Return the state that a character leads to; 0 without one."""
        if self._spine[state] == sign:
            return state + 1
        return self._branches.get(state, {}).get(sign, 0)

    def _insert(self, word: str, parents: array[int]) -> None:
        state = 0
        for number, sign in enumerate(word, start=1):
            following = self._step(state, sign)
            if not following:
                following = len(self._spine)
                if following == state + 1:
                    self._spine[state] = sign
                else:
                    self._branches.setdefault(state, {})[sign] = following
                self._spine.append("")
                self.depth.append(number)
                self._fallback.append(0)
                self._length.append(0)
                self._goal.append(len(word))
                parents.append(state)
            state = following
            self._goal[state] = min(self._goal[state], len(word))
        self._length[state] = len(word)

    def _link(self, parents: array[int]) -> None:
        """Find the fallback of each state, the states nearest to the beginning first."""
        signs = self._spine[:]
        for state, sign in enumerate(self._spine[:-1]):
            signs[state + 1] = sign
        for others in self._branches.values():
            for sign, state in others.items():
                signs[state] = sign
        for state in sorted(range(1, len(parents)), key=self.depth.__getitem__):
            fallback = self._fallback[parents[state]]
            while fallback and not self._step(fallback, signs[state]):
                fallback = self._fallback[fallback]
            following = self._step(fallback, signs[state])
            self._fallback[state] = following if following != state else 0
            self._length[state] = self._length[state] or self._length[self._fallback[state]]


class _Grams:
    """Tell which words a long text may hold, many times faster than it can be walked through.

    Each occurrence of a word covers one of the places that are a fixed stride apart, and what
    stands there is four bytes of the word. They are compared as numbers with those of all words
    at once, so that the number of words hardly matters.
    """

    def __init__(self, words: list[str]) -> None:
        encoded = {word: word.encode("utf-8", "surrogatepass") for word in words}
        least = min(map(len, encoded.values()))
        self._words = words
        self._stride = next((stride for stride in (16, 8, 4) if stride + 3 <= least), 0)
        self._by_gram: dict[int, list[str]] = {}
        for word, content in encoded.items():
            for start in range(self._stride):
                gram = int.from_bytes(content[start : start + _GRAM_BYTES], sys.byteorder)
                self._by_gram.setdefault(gram, []).append(word)
        self._grams = frozenset(self._by_gram)

    def candidates(self, text: str) -> Iterable[str]:
        """Return the words that the text may hold."""
        if not self._stride:
            return self._words
        content = text.encode("utf-8", "surrogatepass")
        whole = len(content) // _GRAM_BYTES * _GRAM_BYTES
        numbers = memoryview(content)[:whole].cast("I")[:: self._stride // _GRAM_BYTES]
        seen = self._grams.intersection(numbers)
        return {word for gram in seen for word in self._by_gram[gram]}


class _Pattern:
    """A regular expression that can say of the end of a text that a match may begin there."""

    _ITEM = re.compile(
        r"(?P<one>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[^\WbBAZ\d]|\\[\W_]|[^\\\[\](){}|^$*+?])"
        r"(?:(?P<sign>[*+?])|\{(?P<least>\d{1,4})(?P<range>,(?P<most>\d{1,4})?)?\})?",
        re.DOTALL,
    )

    def __init__(self, source: str) -> None:
        if len(source) > _LONGEST_SOURCE:
            raise ValueError(f"{source[:20]!r}… has more than {_LONGEST_SOURCE} characters.")
        items = list(self._items(source))
        self._shortest = sum(least for _, least, _ in items)
        longest = sum(most for _, _, most in items)
        if self._shortest < SHORTEST_SECRET:
            raise ValueError(
                f"{source!r} matches fewer than {SHORTEST_SECRET} characters and would mask too"
                " much."
            )
        if longest > LONGEST_PATTERN:
            raise ValueError(f"{source!r} matches more than {LONGEST_PATTERN:,} characters.")
        whole = "".join(f"{one}{{{least},{most}}}+" for one, least, most in items)
        unfinished = ""
        for one, least, most in reversed(items):
            longer = f"|{one}{{{least},{most}}}+{unfinished}" if unfinished else ""
            unfinished = f"(?:{one}{{0,{most - 1}}}+\\Z{longer})"
        head = self._needed_at_first(items)
        self._head_length = len(head)
        try:
            self._head = re.compile("".join(head))
            self._whole = re.compile(whole)
            self._here = re.compile(f"(?P<unfinished>{unfinished})|{whole}")
        except re.error as error:
            raise ValueError(f"{source!r} is no pattern: {error}.") from None

    def scan(self, text: str, at: int, found: list[tuple[int, int]]) -> int:
        """Add what matches from `at` on, and return where a match may begin that is not decided."""
        tail = len(text) - self._head_length + 1
        while at < len(text):
            head = self._head.search(text, at)
            at = max(at, min(head.start() if head else tail, tail))
            match = self._here.match(text, at)
            if match is None:
                at += 1
            elif match["unfinished"] is not None:
                break
            else:
                found.append(match.span())
                at = match.end()
        return at

    def settle(self, text: str, at: int, found: list[tuple[int, int]]) -> int:
        """Do the same as if no more came; only for a match that is half there is still waited."""
        while (at := self.scan(text, at, found)) < len(text):
            match = self._whole.match(text, at)
            if match is not None:
                found.append(match.span())
                at = match.end()
            elif 2 * (len(text) - at) >= self._shortest:
                break
            else:
                at += 1
        return at

    def finish(self, text: str, at: int, found: list[tuple[int, int]]) -> None:
        """Add what matches from `at` on, where the text ends."""
        found += (match.span() for match in self._whole.finditer(text, at))

    def _items(self, source: str) -> Iterator[tuple[str, int, int]]:
        """Yield the parts of a pattern: what one character of it is, and how many there are."""
        at = 0
        while at < len(source):
            item = self._ITEM.match(source, at)
            if item is None:
                raise ValueError(
                    f"{source!r} has something at {source[at : at + 8]!r} that patterns do not"
                    " have: they are characters, classes such as [a-z] or \\d, and ?, *, +, {n} or"
                    " {n,m} behind one. Write one pattern for each alternative."
                )
            least, most = self._counts(item)
            if most:
                yield item["one"], least, most
            at = item.end()

    @staticmethod
    def _counts(item: re.Match[str]) -> tuple[int, int]:
        if item["sign"]:
            return int(item["sign"] == "+"), 1 if item["sign"] == "?" else LONGEST_REPETITION
        least = int(item["least"] or 1)
        if item["range"] is None:
            return least, least
        return least, int(item["most"] or max(least, LONGEST_REPETITION))

    @staticmethod
    def _needed_at_first(items: list[tuple[str, int, int]]) -> list[str]:
        """Return what the first characters of every match are, as far as their number is fixed."""
        head: list[str] = []
        for one, least, most in items:
            head += [one] * least
            if least != most or len(head) > SHORTEST_SECRET:
                break
        return head or [items[0][0] + "?"]


def _places(text: str, at: int, words: Iterable[str]) -> dict[str, int]:
    """Return where in the text the words come next, of those that come."""
    places = {word: text.find(word, at) for word in words}
    return {word: place for word, place in places.items() if place >= 0}


def _words(secret: str) -> Iterator[str]:
    """Yield what is searched for to find a secret, in pieces that are not too long."""
    for spelling in _spellings(secret):
        if len(spelling) < SHORTEST_SECRET or spelling in MASK:
            continue
        for start in range(0, len(spelling) - _LONGEST_WORD, _LONGEST_WORD):
            yield spelling[start : start + _LONGEST_WORD]
        yield spelling[-_LONGEST_WORD:]


def _spellings(secret: str) -> set[str]:
    secret = secret.strip()
    if len(secret) < SHORTEST_SECRET:
        return set()
    lines = {line for line in map(str.strip, secret.splitlines()) if len(line) >= SHORTEST_LINE}
    found: set[str] = set()
    for value in {secret} | lines:
        content = _encoded(value)
        found |= {value, content.decode("utf-8", "replace")}
        found |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        escaped = {ascii(value)[1:-1], repr(value)[1:-1], repr(content)[2:-1]}
        found |= escaped | {text.replace("'", "\\'") for text in escaped if "\\'" not in text}
        found |= {quote_plus(content)} | {quote(content, safe) for safe in ("", "/", "!'()*")}
        found |= {html.escape(value), html.escape(value, quote=False)}
        found.update(_in_base64(content))
    return found


def _encoded(value: str) -> bytes:
    """The bytes of a value, which may stand for some that are no text, as variables can."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _in_base64(content: bytes) -> Iterator[str]:
    """Yield what the content is in encoded data, wherever in it the content begins.

    Characters that also depend on what stands before or behind are left out, except where the
    content is all there is.
    """
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode().rstrip("=")
        whole = (before + len(content)) * 8 // 6
        core = encoded[-(-before * 8 // 6) : whole]
        yield from (core, core.translate(_URL_SAFE))
    encoded = base64.b64encode(content).decode()
    yield from (encoded, encoded.translate(_URL_SAFE))


_URL_SAFE = str.maketrans("+/", "-_")
