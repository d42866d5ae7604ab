"""Descriptions of seeds at the edges: the last values that are possible, each way to write one, each part by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from barnabas.tools.seeding.reading import read_records, read_seeds
from barnabas.tools.seeding.seeds import SeedError, SeedRecord, Seeds, SeedTopic

LAST_MS = 2**63 - 1
TOPIC = {"topic": "t"}
ACL = {"principal": "User:a", "operation": "READ", **TOPIC}


def topic(value: Any) -> SeedTopic:
    [result] = read_seeds({"topics": {"t": value}}).topics
    return result


def record(value: Any) -> SeedRecord:
    [result] = read_records([value])
    return result


def refused(value: Any) -> str:
    with pytest.raises(SeedError) as caught:
        read_seeds(value)
    return str(caught.value)


@pytest.mark.parametrize(
    "value",
    [5, True, [], {}, {"text": "a", "json": 1}, {"xml": "a"}, {"text": 5}, {"base64": "a"}, {"json": {1, 2}}],
    ids=str,
)
@pytest.mark.parametrize("field", ["key", "value"])
def test_what_is_no_bytes_is_refused_in_its_place(value, field):
    with pytest.raises(SeedError) as caught:
        read_records([{}, {field: value}])
    assert str(caught.value).startswith(f"[1].{field}")


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (LAST_MS, LAST_MS),
        (date(1970, 1, 2), 86_400_000),
        (datetime(1970, 1, 1, 0, 0, 1, 1_600), 1_002),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1970, 1, 1, 1, tzinfo=UTC), 3_600_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:00+01:00", 3_600_000),
        ("1970-01-01", 0),
    ],
    ids=str,
)
def test_times_are_milliseconds_or_dates_in_utc_by_default(value, ms):
    assert record({"timestamp": value}).timestamp_ms == ms


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"principal": None}, "the principal is missing"),
        ({"operation": None}, "the operation is missing"),
        ({"topic": None}, "an ACL names one resource"),
        ({"group": "g"}, "an ACL names one resource"),
        ({"principal": "a"}, "as in User:a"),
        ({"principal": ""}, "text expected"),
        ({"pattern": "any"}, "is not one of LITERAL, PREFIXED"),
        ({"permission": "maybe"}, "is not one of DENY, ALLOW"),
        ({"host": 5}, "text expected"),
        ({"color": "red"}, "there is no such field"),
    ],
    ids=str,
)
def test_an_acl_that_lacks_something_or_has_too_much_is_refused(change, reason):
    fields = {name: value for name, value in {**ACL, **change}.items() if value is not None}
    assert reason in refused({"acls": [fields]})


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        ({"user": "u"}, "a quota is missing"),
        ({"producer_byte_rate": 5}, "the quotas' user, client or address is missing"),
        ({"user": "u", "producer_byte_rate": True}, "a number expected"),
        ({"user": "u", "producer_byte_rate": float("inf")}, "a number expected"),
        ({"user": "u", "producer_byte_rate": float("nan")}, "a number expected"),
        ({"user": "u", "producer_byte_rate": "5"}, "a number expected"),
        ({"user": "u", "ip": "10.0.0.1", "producer_byte_rate": 5}, "quotas[0]"),
        ({"user": "u", "connection_creation_rate": 5}, "there is no such quota"),
        ({"user": "", "producer_byte_rate": 5}, "text expected"),
    ],
    ids=str,
)
def test_a_quota_that_nobody_could_obey_is_refused(quota, reason):
    assert reason in refused({"quotas": [quota]})


PARTS = {
    "topics": {"t": 1},
    "groups": {"g": {"t": {0: 1}}},
    "acls": [ACL],
    "users": {"u": {"password": "p"}},
    "quotas": [{"user": "u", "producer_byte_rate": 5}],
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_something_by_itself_and_is_joined(part):
    entry = read_seeds({part: PARTS[part]})
    assert entry
    assert not read_seeds({part: None})
    others = read_seeds({name: value for name, value in PARTS.items() if name != part})
    both = read_seeds(PARTS)
    assert entry + others == others + entry == both
    assert Seeds() + entry == entry
    if part == "topics":
        with pytest.raises(SeedError, match="topic t is described twice"):
            entry + both
        return
    name = "offsets" if part == "groups" else part
    assert len(getattr(entry + both, name)) == 2
