"""Differences between two payloads: by path, by line, and bounded whatever they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.console.differing import (
    ADDED,
    EDITS_MAX,
    LINES_MAX,
    REMOVED,
    ROWS_MAX,
    SAME,
    TEXT_CHARS_MAX,
    _compared,
    by_line,
    difference,
)
from tests.support.effort import drawing


def of(text: str, form: str = "json") -> dict[str, Any]:
    return {"form": form, "text": text, "size": len(text)}


NULL = {"form": "null", "text": "", "size": -1}


def paths(before: str, after: str) -> list[tuple[str, str, str | None, str | None]]:
    differing = difference(of(before), of(after, "AVRO"))
    assert (differing["by"], differing["cut"]) == ("path", False)
    return [(row["path"], row["change"], row["before"], row["after"]) for row in differing["rows"]]


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ('{"a": 1}', '{ "a":1 }', []),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', []),
        ('{"a": 1}', '{"a": 2}', [("$.a", "changed", "1", "2")]),
        ('{"a": 1}', '{"b": 1}', [("$.a", "removed", "1", None), ("$.b", "added", None, "1")]),
        ('{"a": null}', "{}", [("$.a", "removed", "null", None)]),
        ('{"a": {"b": {"c": [1, {"d": "x"}]}}}', '{"a": {"b": {"c": [1, {"d": "y"}]}}}',
         [("$.a.b.c[1].d", "changed", '"x"', '"y"')]),
        ('{"a": {"b": 1}}', '{"a": [1]}', [("$.a", "changed", '{"b": 1}', "[1]")]),
        ('{"a": 1}', '{"a": "1"}', [("$.a", "changed", "1", '"1"')]),
        ('{"a": 1}', '{"a": true}', [("$.a", "changed", "1", "true")]),
        ('{"a": 0}', '{"a": false}', [("$.a", "changed", "0", "false")]),
        ('{"a": 1}', '{"a": 1.0}', [("$.a", "changed", "1", "1.0")]),
        ('{"a": 12345678901234567890}', '{"a": 12345678901234567891}',
         [("$.a", "changed", "12345678901234567890", "12345678901234567891")]),
        ('{"a": 0.1000000000000000001}', '{"a": 0.1}', [("$.a", "changed", "0.1000000000000000001", "0.1")]),
        ('{"a": NaN}', '{"a": NaN}', []),
        ('{"a b": 1, "\\"": 2, "": 3, "ü": 4}', "{}",
         [('$["a b"]', "removed", "1", None), ('$["\\""]', "removed", "2", None), ('$[""]', "removed", "3", None),
          ('$["ü"]', "removed", "4", None)]),
        ("[1, 2, 3]", "[0, 1, 2, 3]", [("$[0]", "added", None, "0")]),
        ("[1, 2, 3]", "[2, 3]", [("$[0]", "removed", "1", None)]),
        ("[1, 2, 3]", "[1, 9, 3]", [("$[1]", "changed", "2", "9")]),
        ("[1, 2, 3]", "[1, 9, 8, 3]", [("$[1]", "changed", "2", "9"), ("$[2]", "added", None, "8")]),
        ("[]", "[[], {}]", [("$[0]", "added", None, "[]"), ("$[1]", "added", None, "{}")]),
        ("[1]", '{"0": 1}', [("$", "changed", "[1]", '{"0": 1}')]),
        ('{"__proto__": 1}', '{"__proto__": 2}', [("$.__proto__", "changed", "1", "2")]),
    ],
)  # fmt: skip
def test_structures_differ_by_path(before: str, after: str, rows: list[tuple[Any, ...]]) -> None:
    assert paths(before, after) == rows


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        (of("a\nb", "text"), of("a\nc", "text"), ["a", "-b", "+c"]),
        (of("1"), of("2"), ["-1", "+2"]),
        (of('{"a": 1}'), of("no", "text"), ['-{"a": 1}', "+no"]),
        (of('{"a": 1}') | {"cut": True}, of('{"a": 2}'), ['-{"a": 1}', '+{"a": 2}']),
        (NULL, of("{}"), ["+{}"]),
        (of("x", "text"), NULL, ["-x"]),
        (NULL, NULL, []),
        (of("", "text"), NULL, ["-"]),
        (of(" ".join(["00"] * 20), "hex"), of(" ".join(["00"] * 19 + ["ff"]), "hex"),
         [" ".join(["00"] * 16), "-00 00 00 00", "+00 00 00 ff"]),
    ],
)  # fmt: skip
def test_what_is_no_structure_differs_by_line(
    before: dict[str, Any], after: dict[str, Any], rows: list[str]
) -> None:
    differing = difference(before, after)
    assert (differing["by"], differing["cut"]) == ("line", False)
    signs = {SAME: "", ADDED: "+", REMOVED: "-"}
    assert [signs[row["change"]] + row["text"] for row in differing["rows"]] == rows


def longest_common(old: list[str], new: list[str]) -> int:
    """The length of the longest subsequence of both, by its recurrence."""
    before = [0] * (len(new) + 1)
    for line in old:
        row = [0]
        for at, other in enumerate(new):
            row.append(before[at] + 1 if line == other else max(before[at + 1], row[at]))
        before = row
    return before[-1]


def test_edits_lead_from_one_to_the_other_and_are_the_fewest() -> None:
    draw = drawing()
    for _ in range(400):
        old, new = ([draw.choice("abc") for _ in range(draw.randrange(14))] for _ in range(2))
        edits = _compared(old, new)
        assert [old[x] for change, x, _ in edits if change != ADDED] == old
        assert [new[y] for change, _, y in edits if change != REMOVED] == new
        assert [x for change, x, _ in edits if change != ADDED] == [*range(len(old))]
        assert [y for change, _, y in edits if change != REMOVED] == [*range(len(new))]
        assert all(old[x] == new[y] for change, x, y in edits if change == SAME)
        assert sum(change == SAME for change, _, _ in edits) == longest_common(old, new), (old, new)


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_line_of_both_is_kept_as_long_as_few_lines_differ(more: int, is_kept: bool) -> None:
    quarter = EDITS_MAX // 4
    old, new = (
        [
            *(f"{name} {number}" for number in range(quarter)),
            "both",
            *(f"{name} {-number}" for number in range(1, quarter + 1)),
        ]
        for name in "ab"
    )
    changes = [change for change, _, _ in _compared(old, [*new, *["more"] * more])]
    assert (SAME in changes) == is_kept
    assert changes.count(REMOVED) == 2 * quarter + (not is_kept)
    assert changes.count(ADDED) == 2 * quarter + more + (not is_kept)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[" * 90 + "1" + "]" * 90, "[" * 90 + "2" + "]" * 90),
        ("[" * 90 + "]" * 90, "[" * 90 + "1" + "]" * 90),
        ('{"a":' * 90 + "[1]" + "}" * 90, '{"a":' * 90 + "[1,2]" + "}" * 90),
        ("[0," * 90 + "1" + "]" * 90, "[0,0," * 90 + "1" + "]" * 90),
    ],
)
def test_depth_costs_no_more_than_size(before: str, after: str) -> None:
    assert (
        difference(of(before), of(after))["by"] == "path"
    )  # some 2 ** 90 comparisons, if each level doubled them


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_what_is_too_deep_differs_by_line(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    before, after = (of(f"{opening * 900}{end}{closing * 900}") for end in (1, 2))
    differing = difference(before, after)
    assert [row["change"] for row in differing["rows"]] in ([REMOVED, ADDED], ["changed"])
    assert all(len(row.get("text", "")) <= TEXT_CHARS_MAX + 2 for row in differing["rows"])


def test_rows_lines_and_texts_are_bounded() -> None:
    many = {f"k{number}": number for number in range(ROWS_MAX + 1)}
    differing = difference(of("{}"), of(json.dumps(many)))
    assert (len(differing["rows"]), differing["cut"]) == (ROWS_MAX, True)
    exactly = difference(of(json.dumps({"k0": 0})), of(json.dumps(many)))
    assert (len(exactly["rows"]), exactly["cut"]) == (ROWS_MAX, False)
    (row,) = difference(of("{}"), of(json.dumps({"k" * 9000: "x" * 9000})))["rows"]
    assert len(row["path"]) == len(row["after"]) == TEXT_CHARS_MAX + 2
    assert row["after"].endswith(" …")
    lines = by_line([], ["x" * 9000] * (LINES_MAX + 1))
    assert (len(lines["rows"]), lines["cut"]) == (ROWS_MAX, True)
    assert len(lines["rows"][0]["text"]) == TEXT_CHARS_MAX + 2
    assert by_line(["a"] * LINES_MAX, ["a"] * (LINES_MAX + 1)) == {"by": "line", "rows": [], "cut": True}
