"""The page on filters, and the console's examples: each is a filter, and holds for a record that is made for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.filters import Content, Fields, compile_filter

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/filters.md").read_text()
EXAMPLES = (ROOT / "server/barnabas/console/static/js/views/records.js").read_text()
ORDER = {
    "total": 63, "limit": 50, "customer": "ann", "status": "new", "note": "re: too late for lunch",
    "items": [{"sku": "a1"}], "ship to": {"city": "Oslo"}, "text": "Overdue: inv-17",
}  # fmt: skip
MEETING = Fields(
    "orders", 2, 1_000, 1_796_028_411_840, Content(b"ann"), Content(json.dumps(ORDER).encode()),
    [("trace", Content(b"7"))],
)  # fmt: skip
OTHERS = {"$.error": json.dumps({"error": "x"}).encode(), "value = null": None}


@pytest.mark.parametrize("text", re.findall(r"(?m)^\| `([^`]+)` \|", PAGE))
def test_filters_of_the_page_hold_for_their_records(text: str) -> None:
    fields = MEETING
    if text in OTHERS:
        fields = Fields("orders", 2, 1_000, 0, Content(b"ann"), Content(OTHERS[text]), [])
    assert compile_filter(text).matches(fields)


@pytest.mark.parametrize("text", re.findall(r'(?m)^  \["((?:\\.|[^"])+)", "', EXAMPLES))
def test_examples_of_the_console_are_filters(text: str) -> None:
    assert compile_filter(json.loads(f'"{text}"')).matches(MEETING) is (text != "value = null")


def test_refusal_of_a_filter_is_as_the_page_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "orders", "--where", "$.total >> 60"]) == 2
    assert capsys.readouterr().err.startswith(re.findall(r"(?s)```\n(barnabas.*?)```", PAGE)[0])
