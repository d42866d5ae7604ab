"""Times on the command line of a job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from barnabas_pipeline.commands.common import parse_time
from barnabas_pipeline.errors import UsageError


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("-5", -5),
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:00", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:01.5Z", 1500),
    ],
)
def test_a_time_is_read(text: str, time_ms: int) -> None:
    assert parse_time(text) == time_ms


def test_a_time_is_read_as_it_is_written_to_the_millisecond() -> None:
    for time_ms in range(1_000, 2_000):
        assert parse_time(datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()) == time_ms


def test_what_is_no_time_says_so() -> None:
    with pytest.raises(UsageError, match="'noon' is no time"):
        parse_time("noon")
