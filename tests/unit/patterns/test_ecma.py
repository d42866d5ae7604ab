"""Patterns of ECMAScript, as JSON Schema has them; what they find is what `new RegExp(pattern, "u")` finds in Node 20."""

from __future__ import annotations

import pytest

from barnabas.patterns import PatternError
from barnabas.patterns.ecma import EcmaPattern

PASSWORD = r"^(?=.*[A-Z])(?=.*\d)(?!.*\s).{8,}$"


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("b", ["abc"], ["ac"]),
        ("^a$", ["a"], ["a\n", "\na", "ba"]),
        (".", ["a", "\x85", "\t", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029", ""]),
        ("^.{2}$", ["\U0001f600a"], ["a\r"]),
        (r"\d", ["1"], ["\u0663"]),
        (r"^\w$", ["a", "_"], ["\u00e9"]),
        (r"^\s$", [" ", "\v", "\u00a0", "\ufeff", "\u2003"], ["\x85", "\x1c"]),
        (r"^[\S]$", ["\x85", "a"], ["\u00a0", "\ufeff"]),
        (r"^[^\s\d]$", ["a"], ["\u2028", "1"]),
        (r"\bb", ["a b"], ["ab"]),
        (r"\Bb", ["ab"], ["a b"]),
        (r"^\cC\0\x41\u0042\u{43}\t$", ["\x03\0ABC\t"], ["\x03\0ABCt"]),
        (r"^\ud83d\ude00\u{1F600}$", ["\U0001f600" * 2], ["\U0001f600"]),
        ("^\U0001f432*$", ["", "\U0001f432" * 2], ["\U0001f409"]),
        ("[]", [], ["a", ""]),
        ("[^]", ["a", "\n"], [""]),
        (r"^[\b\]\-a-c[&&]+$", ["\b]-b[&"], ["d"]),
        (r"^[\w-.]+$", ["a-.b"], ["a,b"]),
        (r"^[\w-]+[-a]$", ["a--"], ["a-b"]),
        (r"^\p{Lu}\p{Letter}\P{L}\p{Script=Greek}\p{Nd}$", ["A\u00e91\u03b1\u0663"], ["aa1aa"]),
        (r"^[\p{Lu}\P{ASCII}]\p{ASCII}$", ["Aa", "\u00e9a"], ["aa"]),
        (r"^(a|b)(?:c)(?<name>d)$", ["acd", "bcd"], ["abcd"]),
        (r"^(ab){2}c{1,2}d{0,}?e+?$", ["ababcce", "ababcdde"], ["abce"]),
        (r"^a{1500}$", ["a" * 1500], ["a" * 1499, "a" * 1501]),
        (r"^a{1200,2500}$", ["a" * 1200, "a" * 2500], ["a" * 1199, "a" * 2501]),
        (r"^a{1001,}b$", ["a" * 1001 + "b"], ["a" * 1000 + "b"]),
        (r"^.{0,4000}$", ["a" * 4000, "\u00e9" * 4000], ["a" * 4001]),
        (r"^a\/\_\@\-\}}]$", ["a/_@-}}]"], ["a"]),
        (PASSWORD, ["Abcdefg1"], ["abcdefg1", "Abcdefgh", "Abc defg1", "A1"]),
        ("^(?!foo|bar).*$", ["food"[1:], ""], ["foo", "barn"]),
        (r"^(?=a(?:b|[)])\))", ["ab)c", "a))"], ["ab"]),
    ],
)
def test_a_pattern_finds_what_ecmascript_finds(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = EcmaPattern(pattern)
    assert [text for text in matching if not compiled.finds(text)] == []
    assert [text for text in others if compiled.finds(text)] == []


def test_half_of_a_pair_in_a_text_is_a_character() -> None:
    assert EcmaPattern("^.a$").finds("\ud83da")
    assert not EcmaPattern("^.a$").finds("a")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(?=b)", r'it looks ahead or behind, "\(\?=", elsewhere than at its beginning'),
        ("^(?=a)b|c", "it looks ahead or behind"),
        ("^(?:(?!a).)*$", "it looks ahead or behind"),
        ("(?<=a)b", "it looks ahead or behind"),
        (r"(a)\1", r'it refers back to a group, "\\1"'),
        (r"(?<n>a)\k<n>", "it refers back to a group"),
        ("(?i)a", r'no group of ECMAScript begins with "\(\?i"'),
        ("(?P<n>a)", "no group of ECMAScript begins with"),
        ("(?#a)", "no group of ECMAScript begins with"),
        ("a++", "there is nothing to repeat, or it is repeated already"),
        ("^*", "there is nothing to repeat"),
        ("|+", "there is nothing to repeat"),
        (r"\b+", "there is nothing to repeat"),
        ("{a}", 'a "{" that begins no quantifier'),
        ("a{,2}", 'a "{" that begins no quantifier'),
        ("a{2,1}", r"\{2,1\} is no range"),
        ("a{100001}", "it repeats something more than 100000 times"),
        ("a{100000}", "it takes too much memory"),
        ("(a{100}){100}", "more than 1000 times"),
        (r"\A", r'ECMAScript has no "\\A"'),
        (r"\x4", r'ECMAScript has no "\\x"'),
        (r"\u{110000}", "is no character"),
        (r"\ud83d", "U.D83D is no character"),
        ("\ud83d", "U.D83D is no character"),
        (r"[b-a]", '"b-a" is no range'),
        (r"[\d-z-a]", 'a "-" beside a set of characters'),
        (r"[a-\d]", 'a "-" beside a set of characters'),
        (r"\p{Cn}", "of properties there are categories and scripts"),
        (r"\p{Foo}", "of properties there are categories and scripts"),
        (r"\pL", "of properties there are categories and scripts"),
        (r"\p{Script=Nobody}", "invalid character class range"),
        ("(", r'a "\)" is missing'),
        ("^(?=a", r'a "\)" is missing'),
        ("a)", r'a "\)" closes nothing'),
        ("[a", r'a "\]" is missing'),
        ("a\\", r'it ends in a "\\"'),
        ("(" * 40_000 + "a", r'a "\)" is missing'),
        ("a" * 70_000, "it has more than 65536 characters"),
        (r"\S" * 30_000, "it is too long"),
        ("(?:a{90000}b{90000}){900}" * 900, "it repeats too much too often"),
    ],
)
def test_a_pattern_that_cannot_be_had_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as refused:
        EcmaPattern(pattern)
    assert len(str(refused.value)) < 500


def test_a_text_that_might_take_too_long_is_refused() -> None:
    compiled = EcmaPattern(r"(\w+\s?){1000}!")
    assert compiled.finds("a" * 1000 + "!")
    with pytest.raises(PatternError, match="a text of 1000000 characters takes too long"):
        compiled.finds("a" * 1_000_000)
