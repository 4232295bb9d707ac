"""All secrets as one automaton, which finds them in a text in one pass.

Pure, and linear in the length of the text whatever the words are.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable

_GRAM_BYTES = 4
_SMALL_TEXT = 64
"""Shorter texts are walked through directly: looking for grams would not pay."""


class WordAutomaton:
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
        self._are_lines = not any("\n" in word for word in words)
        """Whether no word goes on behind the end of a line."""
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
        tail = self._start_of_tail(text, at)
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

    def _start_of_tail(self, text: str, at: int) -> int:
        """Return before which place no word begins that is not yet complete."""
        tail = len(text) - self._longest + 1
        return max(tail, text.rfind("\n", at) + 1) if self._are_lines else tail

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


def _places(text: str, at: int, words: Iterable[str]) -> dict[str, int]:
    """Return where in the text the words come next, of those that come."""
    places = {word: text.find(word, at) for word in words}
    return {word: place for word, place in places.items() if place >= 0}
