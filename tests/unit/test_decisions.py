"""Decisions: each has a page of one form and a row in the index, and each number that is named anywhere has a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_docs import DECISIONS, TEXT, files, named


def decisions() -> dict[int, Path]:
    """The pages of decisions, by their numbers."""
    return {int(path.name[:4]): path for path in DECISIONS.glob("[0-9]*.md")}


def cited_decisions(text: str) -> Iterator[int]:
    """Numbers of decisions that a text names: `decision 79`, `decisions/0079-...`, `[0079](0079-...)`."""
    for number in re.findall(r"\b[Dd]ecisions?[ /](\d{1,4})\b", text):
        yield int(number)
    for numbers in re.findall(r"\b[Dd]ecisions (\d{1,4}(?:,? (?:and )?\d{1,4})+)", text):
        yield from map(int, re.findall(r"\d+", numbers))
    for number in re.findall(r"\[(0\d{3})\]", text):
        yield int(number)


def test_decisions_named_anywhere_have_a_page() -> None:
    pages = decisions()
    dangling = [
        f"{named(path)}: decision {number}"
        for path in files(*TEXT)
        if path != Path(__file__)
        for number in cited_decisions(path.read_text())
        if number not in pages
    ]
    assert dangling == []


def test_a_decision_is_cited_in_each_of_these_forms() -> None:
    text = "decision 0001, (Decision 2), docs/decisions/0003-x.md, [0004](0004-x.md), decisions 5 and 6; number 0007"
    assert set(cited_decisions(text)) == {1, 2, 3, 4, 5, 6}


def test_the_index_has_a_line_and_a_status_for_each_decision() -> None:
    index = (DECISIONS / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| .+ \| (.+) \|$", index, re.M)
    assert [(int(number), name) for number, name, _ in rows] == sorted(
        (number, path.name) for number, path in decisions().items()
    )
    statuses = {status for _, _, status in rows}
    assert {
        text for text in statuses if not re.fullmatch(r"accepted|superseded by \[\d{4}\]\(\S+\)", text)
    } == set()


@pytest.mark.parametrize("path", sorted(decisions().values()), ids=lambda path: path.name[:4])
def test_a_decision_is_a_page_that_opens_with_what_was_decided(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith(f"# {path.name[:4]}: ")
    assert lines[1] == ""
    assert lines[2].startswith("**Decision.**")
    bold = re.findall(r"^\*\*(.+?)\.\*\*", path.read_text(), re.M)
    assert bold in (["Decision", "Why", "Considered"], ["Decision", "Why"])
    assert len(lines) <= 60
