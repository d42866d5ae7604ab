"""Patterns of Java, as Kafka's settings have them."""

from __future__ import annotations

import pytest

from barnabas.patterns import PatternError
from barnabas.patterns.java import java_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (r"CN=(.*?),OU=.*", ["CN=a,OU=b", "CN=a,b,OU=c"], ["CN=a\r,OU=b", "CN=a,OU=\u2028", "CN=\x85,OU=b"]),
        (r"(?s)a.b", ["a\nb", "a\rb"], ["ab"]),
        (r"(?s:a.)(.)", ["a\nb"], ["a\n\n"]),
        (r"(?s)(?-s:a.)b(.)", ["a-b\n"], ["a\nb-"]),
        (r"(a(?s).)(.)", ["a\nb"], ["a\n\n"]),
        (r"(?i)cn=([a-c]+)", ["cn=abc", "CN=ABC"], ["cn=x"]),
        (r"\s", ["\v", " ", "\t"], ["\u00a0"]),
        (r"[^\s]\S", ["a\u00a0"], ["a\v"]),
        (r"[\S]", ["a", "\u00a0"], ["\v", " "]),
        (r"\w\d", ["a1", "_0"], ["\u00e91", "a\u0663"]),
        (r"[]a]+", ["]a"], ["["]),
        (r"[^]a].", ["bb"], ["]b", "ab"]),
        (r"[\[].", ["[]"], ["]]"]),
        (r"[a&b]\Q.*[\E\.", ["&.*[."], ["a.*["]),
        (r"\u00e9\x41(?<name>\pL)", ["\u00e9A\u00e4"], ["eA1"]),
    ],
)
def test_a_pattern_means_what_it_means_to_java(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = java_pattern(pattern)
    assert [text for text in matching if not compiled.fullmatch(text)] == []
    assert [text for text in others if compiled.fullmatch(text)] == []


def test_groups_are_kept() -> None:
    compiled = java_pattern(r"(?<first>a)(?:b)(c)")
    assert compiled.fullmatch("abc").groups() == ("a", "c")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"a(?=b)", "it looks ahead or behind"),
        (r"(a)\1", "it refers back to a group"),
        (r"a*+", "it has a possessive quantifier"),
        (r"[a-z[0-9]]", "it has a class within a class"),
        (r"[a-z&&[^b]]", "it has a class within a class"),
        (r"a(?x:b)", "it has other flags than i and s"),
        (r"(?U)\w", "it has other flags than i and s"),
        ("(?i)\u00e9", "it has the flag i beside characters that are not ASCII"),
        (r"\v", r'it has "\\v"'),
        (r"\012", r'it has "\\0"'),
        (r"\p{IsGreek}", "invalid character class range"),
        ("(", "missing"),
        ("\\", "trailing"),
    ],
)
def test_what_would_mean_something_else_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        java_pattern(pattern)
