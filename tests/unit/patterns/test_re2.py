"""Patterns in RE2's syntax: for texts, for bytes and of names, and why some are refused."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from barnabas.patterns import (
    CHARACTERS_MAX,
    PatternError,
    compile_bytes,
    compile_glob,
    compile_pattern,
    steps,
)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(?=b)", 'it looks ahead or behind, "(?=", which RE2 cannot do'),
        ("a(?<!b)", 'it looks ahead or behind, "(?<!", which RE2 cannot do'),
        (r"(a)\1", r'it refers back to a group, "\1", which RE2 cannot do'),
        ("(?P<n>a)(?P=n)", 'it refers back to a group, "(?P=", which RE2 cannot do'),
        ("(?>a)", 'it has an atomic group, "(?>", which RE2 cannot do'),
        ("a++", 'it has a possessive quantifier, "++", which RE2 cannot do'),
        ("a{1001}", '"{1001}" repeats, together with what is around it, more than 1000 times'),
        ("(a{100}){11}", '"{11}" repeats, together with what is around it, more than 1000 times'),
        (r"\p{L}{1000}", "it takes too much memory"),
        ("a?" * 4_501, "it has more than 4500 optional parts"),
        ("a{0,5}" * 901, "it has more than 4500 optional parts"),
        (r"\pL" * 501, "it has more than 500 properties of characters"),
        ("a(", 'missing ): "a("'),
        ("\\", "trailing \\"),
        ("\ud800", "it is not Unicode text"),
        ("a" * (CHARACTERS_MAX + 1), f"it has more than {CHARACTERS_MAX} characters"),
    ],
)
def test_a_pattern_that_cannot_be_had_is_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert refused.value.reason == reason
    assert str(refused.value) == f"{refused.value.shown} is not a regular expression of RE2: {reason}"
    assert len(str(refused.value)) < 400, "a long pattern is not quoted whole"


def test_nested_repetitions_take_linear_time() -> None:
    assert compile_pattern("(a|aa)*b").fullmatch("a" * 100_000) is None


def test_the_dearest_patterns_cause_no_stall() -> None:
    for pattern in (
        "a?" * 4_500,
        "a{0,5}" * 900,
        r"\pL?" * 500,
        "(?:a?" * 4_500 + ")" * 4_500,
        "a{0,999}" * 4,
    ):
        start = time.thread_time()
        with suppress(PatternError):  # some take too much memory, which is found as soon
            compile_pattern(pattern)
        assert time.thread_time() - start < 0.5, f"{pattern[:10]}: a tenth is usual"


def test_thousands_of_names_are_one_pattern() -> None:
    names = [f"team-{number}-orders" for number in range(3_000)]
    pattern = compile_pattern("|".join(names))
    assert pattern.fullmatch(names[-1])
    assert not pattern.fullmatch(f"{names[-1]}-more")


def test_steps_grow_with_the_pattern_and_the_text() -> None:
    small, large = compile_pattern("a{10}"), compile_pattern("a{1000}")
    assert steps(large, "a" * 100) > 50 * steps(small, "a" * 100)
    assert steps(small, "a" * 1000) == 10 * steps(small, "a" * 100)


def test_each_byte_is_a_character_to_a_pattern_of_bytes() -> None:
    assert compile_bytes(b"a.\xffb").search(b"--a\xc3\xffb")
    assert compile_bytes("\u00e9".encode()).search("caf\u00e9".encode())
    with pytest.raises(PatternError, match=r"xff\(' is not"):
        compile_bytes(b"\xff(")


@pytest.mark.parametrize(
    ("names", "matching", "other"),
    [
        (["a*"], "a\nb", "ba"),
        (["a?c", "x"], "abc", "ac"),
        (["a?c", "x"], "x", "xx"),
        (["a.[b]+*"], "a.[b]+", "axb"),
        ([r"\d*"], r"\d", "5"),
        (["\u00e9?"], "\u00e9\u00e9", "\u00e9"),
    ],
)
def test_names_have_two_special_characters(names: list[str], matching: str, other: str) -> None:
    pattern = compile_glob(names)
    assert pattern.fullmatch(matching)
    assert not pattern.fullmatch(other)
