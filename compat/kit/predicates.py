"""Predicates of known differences that several comparisons share: how far two responses may differ.

The rule: a predicate constrains both values, so that another error code, a missing value and an additional one are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from compat.kit.known import Difference, Predicate

CLOSED = {"connection": "the broker closed the connection"}
SILENT = {"connection": "no answer in 15 s"}
UNKNOWN_SERVER_ERROR = -1
NOTHING = "nothing"
"""Value of `differences_between` in place of a field that one side lacks."""


def pair(theirs: Any, ours: Any) -> Predicate:
    """Exactly these two values."""
    return lambda difference: (difference.theirs, difference.ours) == (theirs, ours)


def pairs(*accepted: tuple[Any, Any]) -> Predicate:
    """One of these pairs of Kafka's value and ours."""
    return lambda difference: (difference.theirs, difference.ours) in accepted


def any_of(*predicates: Predicate) -> Predicate:
    """Accept a difference that any of these predicates accepts."""
    return lambda difference: any(accepts(difference) for accepts in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """Accept a difference that all of these accept."""
    return lambda difference: all(accepts(difference) for accepts in predicates)


def both(is_right: Callable[[Any], bool]) -> Predicate:
    """Both values are of this kind."""
    return lambda difference: is_right(difference.theirs) and is_right(difference.ours)


def words_where_none(difference: Difference) -> bool:
    """Words for people where Kafka has none, or an empty text."""
    return difference.theirs in (None, "") and difference.ours == "words"


def words_of_an_error(difference: Difference) -> bool:
    """Words for people where Kafka has none, beside an error code that both sides have."""
    return (
        difference.path.endswith("/ErrorMessage")
        and words_where_none(difference)
        and all(holder["ErrorCode"] for holder in difference.holders())
    )


def lower(difference: Difference) -> bool:
    """Both are numbers, and ours is lower."""
    return (
        type(difference.theirs) is type(difference.ours) is int and 0 <= difference.ours < difference.theirs
    )


def higher(difference: Difference) -> bool:
    """Both are numbers, and ours is higher."""
    return (
        type(difference.theirs) is type(difference.ours) is int and 0 <= difference.theirs < difference.ours
    )


def only_theirs(difference: Difference) -> bool:
    """Kafka has the entry, and we do not."""
    return difference.ours == NOTHING and (isinstance(difference.theirs, dict) or difference.theirs is True)


def is_id(value: Any) -> bool:
    """Return whether a value is an assigned id."""
    return type(value) is int and value >= 0


def is_path(value: Any) -> bool:
    """Return whether a text is the absolute path of a directory."""
    return isinstance(value, str) and value.startswith("/") and len(value) > 1


def answers(theirs: Callable[[Any], bool], ours: Callable[[Any], bool]) -> Predicate:
    """Accept any difference between responses that these predicates accept."""
    return lambda difference: theirs(difference.whole[0]) and ours(difference.whole[1])


def closed(answer: Any) -> bool:
    """Return whether the connection was closed without an answer."""
    return bool(answer == CLOSED)


def silent(answer: Any) -> bool:
    """Return whether there was no response."""
    return bool(answer == SILENT)


def equal(expected: Any) -> Callable[[Any], bool]:
    """Answers that are exactly this."""
    return lambda answer: bool(answer == expected)


def codes(*expected: int) -> Callable[[Any], bool]:
    """Accept responses with exactly these error codes, each at least once; 0 counts as a code."""
    return lambda answer: set(error_codes(answer)) == set(expected)


def error_codes(answer: Any) -> Iterator[int]:
    """Yield all error codes of an answer, from the outside to the inside."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("ErrorCode"):
                yield value
            yield from error_codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)


def stumbles(code: int) -> Predicate:
    """Kafka has UNKNOWN_SERVER_ERROR where we have this code, with a message if the field exists."""
    expected = (UNKNOWN_SERVER_ERROR, code)
    return lambda difference: (
        (difference.path.endswith("ErrorCode") and (difference.theirs, difference.ours) == expected)
        or (
            words_of_an_error(difference)
            and tuple(holder["ErrorCode"] for holder in difference.holders()) == expected
        )
    )
