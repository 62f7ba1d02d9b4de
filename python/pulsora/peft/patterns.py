"""Regular expressions of layer names, matched in a time that no pattern can make exponential."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

__all__ = ["LONGEST", "NamePattern"]

LONGEST = 1000
"""Largest number of characters of a name or of a pattern."""

_MOST_STATES = 5000

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


class NamePattern:
    """A regular expression that matches the whole name of a layer, or its last parts, as in PEFT.

    The matcher of `re` tries every way to divide a name, which takes exponential time for patterns
    like '(a+)+!'. Here the pattern becomes a nondeterministic automaton, whose states are followed
    side by side. Literals, sets, '.', groups, alternatives, repetitions, '^' and '$' are known.

    Raises:
        ValueError: if the text is no regular expression, is too long, or has parts without a
            meaning here.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"it has {len(text)} characters; {LONGEST} are allowed")
        # A state is a test of a character (or of a place) and the states behind it.
        self._states: list[tuple[str, Any, list[int]]] = [("END", None, [])]
        try:
            parsed = _parser.parse(text)
            self._first = self._sequence(parsed, 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no regular expression ({error})") from None
        if parsed.state.flags & ~re.UNICODE.value:
            raise ValueError("flags such as (?i) have no meaning here")
        literal = text.removeprefix("^")
        self._anchored = literal != text
        plain = re.sub(r"\\([^a-zA-Z0-9])", r"\1", literal)
        self._literal = plain if re.escape(plain) == literal else None

    def matches(self, name: str) -> bool:
        """Whether the pattern matches a name, or its last parts behind a dot."""
        if self._literal is not None:  # a quick way for the names that Pulsora writes
            is_end = not self._anchored and name.endswith(f".{self._literal}")
            return name == self._literal or is_end
        states: set[int] = set()
        for place in range(len(name) + 1):
            if place:
                each = name[place - 1]
                states = {
                    following
                    for kind, value, behind in map(self._states.__getitem__, states)
                    if _is_in(kind, value, each)
                    for following in behind
                }
            if place == 0 or name[place - 1] == ".":
                states.add(self._first)
            states = self._reached(states, is_first=place == 0, is_last=place == len(name))
        return 0 in states

    def _reached(self, states: set[int], *, is_first: bool, is_last: bool) -> set[int]:
        """Adds the states that are reached without a character."""
        found, left = set(states), list(states)
        while left:
            kind, _, behind = self._states[left.pop()]
            if kind == "SPLIT" or (kind == "FIRST" and is_first) or (kind == "LAST" and is_last):
                left += set(behind) - found
                found.update(behind)
        return found

    def _state(self, kind: str, value: Any, behind: list[int]) -> int:  # noqa: ANN401
        if len(self._states) == _MOST_STATES:
            raise ValueError("its repetitions are too many")
        self._states.append((kind, value, behind))
        return len(self._states) - 1

    def _sequence(self, parts: Any, behind: int) -> int:  # noqa: ANN401 - of the parser
        """Returns the first state of parts in a row, before the state `behind`."""
        for code, value in reversed(list(parts)):
            behind = self._part(str(code), value, behind)
        return behind

    def _part(self, kind: str, value: Any, behind: int) -> int:  # noqa: ANN401
        if kind in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}:
            return self._state(kind, value, [behind])
        if kind == "AT" and str(value) in _PLACES:
            return self._state(_PLACES[str(value)], None, [behind])
        if kind == "SUBPATTERN" and not (value[1] or value[2]):
            return self._sequence(value[3], behind)
        if kind == "BRANCH":
            return self._state("SPLIT", None, [self._sequence(each, behind) for each in value[1]])
        if kind in {"MAX_REPEAT", "MIN_REPEAT"}:
            least, most, parts = value
            first = behind
            if most == _parser.MAXREPEAT:
                first = self._state("SPLIT", None, [behind])
                self._states[first][2].append(self._sequence(parts, first))
            else:
                for _ in range(most - least):
                    first = self._state("SPLIT", None, [behind, self._sequence(parts, first)])
            for _ in range(least):
                before, first = first, self._sequence(parts, first)
                if first == before:  # nothing is repeated
                    break
            return first
        raise ValueError(
            f"it has a part ({kind.lower()}) without a meaning here; write literals, sets, groups, "
            "alternatives and repetitions"
        )


_PLACES = {
    "AT_BEGINNING": "FIRST",
    "AT_BEGINNING_STRING": "FIRST",
    "AT_END": "LAST",
    "AT_END_STRING": "LAST",
}


def _is_in(kind: str, value: Any, each: str) -> bool:  # noqa: ANN401 - of the parser
    """Whether a character passes the test of a state."""
    if kind == "ANY":
        return each != "\n"
    if kind in {"LITERAL", "NOT_LITERAL"}:
        return bool(ord(each) == value) == (kind == "LITERAL")
    if kind == "RANGE":
        return ord(each) in range(value[0], value[1] + 1)
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        is_in = {
            "DIGIT": each.isdecimal(),
            "SPACE": each.isspace(),
            "WORD": each.isalnum() or each == "_",
        }
        return is_in[name.removeprefix("NOT_")] != name.startswith("NOT_")
    if kind != "IN":
        return False
    is_negated = str(value[0][0]) == "NEGATE"
    return any(_is_in(str(code), part, each) for code, part in value[is_negated:]) != is_negated
