"""Descriptions of seeds at the edges: the last values that are possible, each way to write one, each part by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from barnabas.security.acls import PatternType, Permission
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.tools.seeding.reading import read_records, read_seeds
from barnabas.tools.seeding.seeds import SeedError, SeedOffset, SeedRecord, Seeds, SeedTopic

LAST_MS = 2**63 - 1
TOPIC = {"topic": "t"}
ACL = {"principal": "User:a", "operation": "READ", **TOPIC}


def topic(value: Any) -> SeedTopic:
    [found] = read_seeds({"topics": {"t": value}}).topics
    return found


def record(value: Any) -> SeedRecord:
    [found] = read_records([value])
    return found


def refused(value: Any) -> str:
    with pytest.raises(SeedError) as caught:
        read_seeds(value)
    return str(caught.value)


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_topics_have_up_to_a_million_partitions(count):
    assert topic(count) == topic({"partitions": count}) == SeedTopic("t", count)


@pytest.mark.parametrize("count", [0, -1, 1_000_001, True, "3", 1.0])
def test_other_numbers_of_partitions_are_refused(count):
    assert "topics.t.partitions: a whole number from 1 to 1000000" in refused(
        {"topics": {"t": {"partitions": count}}}
    )
    if isinstance(count, int):
        assert "topics.t: a whole number from 1 to 1000000" in refused({"topics": {"t": count}})


@pytest.mark.parametrize(("partitions", "last"), [(1, 0), (3, 2), (None, 999_999)])
def test_a_record_is_for_a_partition_that_its_topic_has(partitions, last):
    fields = {"partitions": partitions} if partitions else {}
    for index in {0, last}:
        [found] = topic({**fields, "records": [{"partition": index}]}).records
        assert found == SeedRecord(None, None, partition=index)
    for index in (-1, last + 1):
        text = refused({"topics": {"t": {**fields, "records": [{}, {"partition": index}]}}})
        assert f"topics.t.records[1].partition: a whole number from 0 to {last} expected" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
        ("x", "x"),
        ("", ""),
        (["a", 5], "a,5"),
        ([], ""),
    ],
)
def test_settings_are_written_as_texts(value, text):
    assert topic({"settings": {"name": value}}).settings == {"name": text}


@pytest.mark.parametrize("value", [None, {}, [1.5], ["a", None], [["a"]]])
def test_what_is_no_setting_is_refused(value):
    assert "a setting's value expected" in refused({"topics": {"t": {"settings": {"name": value}}}})


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        ("", b""),
        ("ä", "ä".encode()),
        ("\udcff", b"\xff"),  # of a command line that is no UTF-8
        ({"text": "x"}, b"x"),
        ({"text": ""}, b""),
        ({"json": None}, b"null"),
        ({"json": {"a": [1, "ä"]}}, '{"a":[1,"ä"]}'.encode()),
        ({"base64": ""}, b""),
        ({"base64": "/+8="}, b"\xff\xef"),
    ],
    ids=str,
)
def test_keys_values_and_headers_are_bytes_in_each_form(value, data):
    found = record({"key": value, "value": value, "headers": [{"h": value}, {"i": value, "h": "again"}]})
    assert (found.key, found.value) == (data, data)
    assert found.headers == (("h", data), ("i", data), ("h", b"again"))
    if not isinstance(value, dict):
        assert record(value) == SeedRecord(None, data)


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
def test_times_are_milliseconds_or_dates_which_are_in_utc_unless_they_say_otherwise(value, ms):
    assert record({"timestamp": value}).timestamp_ms == ms


@pytest.mark.parametrize("value", [-1, LAST_MS + 1, 1.5, True, None, "now", ""])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(SeedError, match="timestamp"):
        read_records([{"timestamp": value}])


def test_offsets_are_for_partitions_by_number_also_in_json():
    partitions = {"0": 0, 1: LAST_MS, "2": {"offset": "latest"}, 3: "earliest"}
    assert read_seeds({"groups": {"g": {"t": partitions}}}).offsets == (
        SeedOffset("g", "t", 0, 0),
        SeedOffset("g", "t", 1, LAST_MS),
        SeedOffset("g", "t", 2, -1),
        SeedOffset("g", "t", 3, -2),
    )


@pytest.mark.parametrize(
    ("partitions", "reason"),
    [
        ({-1: 0}, "the number of a partition expected"),
        ({True: 0}, "the number of a partition expected"),
        ({"x": 0}, "the number of a partition expected"),
        ({"-1": 0}, "the number of a partition expected"),
        ({0: -1}, "a whole number from 0"),
        ({0: LAST_MS + 1}, "a whole number from 0"),
        ({0: "Latest"}, "an offset, earliest or latest expected"),
        ({0: {"metadata": "m"}}, "the offset is missing"),
        ({0: {"offset": 1, "metadata": ""}}, "text expected"),
        ({0: {"offset": 1, "epoch": 1}}, "there is no such field"),
    ],
    ids=str,
)
def test_what_is_no_offset_of_a_partition_is_refused(partitions, reason):
    assert reason in refused({"groups": {"g": {"t": partitions}}})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topic", ResourceType.TOPIC),
        ("group", ResourceType.GROUP),
        ("transactional_id", ResourceType.TRANSACTIONAL_ID),
        ("delegation_token", ResourceType.DELEGATION_TOKEN),
        ("user", ResourceType.USER),
    ],
)
def test_an_acl_is_about_a_resource_of_each_type(name, kind):
    [found] = read_seeds({"acls": [{"principal": "User:a", "operation": "all", name: "x"}]}).acls
    assert found.pattern == (kind, PatternType.LITERAL, "x")
    assert found.entry == ("User:a", "*", Operation.ALL, Permission.ALLOW)


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


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_a_password_is_hashed_as_often_as_scram_lets(iterations):
    [user] = read_seeds({"users": {"u": {"password": "p", "iterations": iterations}}}).users
    assert (user.name, user.password, user.iterations) == ("u", "p", iterations)


@pytest.mark.parametrize("iterations", [4095, 16385, "4096", True])
def test_other_numbers_of_iterations_are_refused(iterations):
    assert "a whole number from 4096 to 16384" in refused(
        {"users": {"u": {"password": "p", "iterations": iterations}}}
    )


@pytest.mark.parametrize(
    ("said", "entity"),
    [
        ({"user": "u"}, QuotaEntity("u")),
        ({"user": "default"}, QuotaEntity("")),
        ({"client_id": "c"}, QuotaEntity(None, "c")),
        ({"user": "default", "client_id": "c"}, QuotaEntity("", "c")),
    ],
    ids=str,
)
def test_quotas_are_for_users_and_clients_by_name_or_for_all_others(said, entity):
    [quota] = read_seeds({"quotas": [{**said, "producer_byte_rate": 5}]}).quotas
    assert (quota.entity, quota.quotas) == (entity, {"producer_byte_rate": 5.0})


@pytest.mark.parametrize(
    ("said", "reason"),
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
def test_a_quota_that_nobody_could_obey_is_refused(said, reason):
    assert reason in refused({"quotas": [said]})


@pytest.mark.parametrize("name", [True, 1.5, None, ""])
def test_names_are_texts_or_numbers(name):
    assert "a name expected" in refused({"topics": {name: 1}})
    assert topic_names({5: 1, "a": 1}) == ["5", "a"]


def topic_names(topics: Any) -> list[str]:
    return [one.name for one in read_seeds({"topics": topics}).topics]


PARTS = {
    "topics": {"t": 1},
    "groups": {"g": {"t": {0: 1}}},
    "acls": [ACL],
    "users": {"u": {"password": "p"}},
    "quotas": [{"user": "u", "producer_byte_rate": 5}],
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_something_by_itself_and_is_joined(part):
    one = read_seeds({part: PARTS[part]})
    assert one
    assert not read_seeds({part: None})
    others = read_seeds({name: value for name, value in PARTS.items() if name != part})
    both = read_seeds(PARTS)
    assert one + others == others + one == both
    assert Seeds() + one == one
    if part == "topics":
        with pytest.raises(SeedError, match="topic t is described twice"):
            one + both
        return
    name = "offsets" if part == "groups" else part
    assert len(getattr(one + both, name)) == 2


def test_the_nearest_line_that_is_known_is_told_with_the_file():
    lines = {(): 1, ("topics",): 2, ("topics", "t"): 3, ("topics", "t", "records", 1): 6}
    value = {"topics": {"t": {"records": [{}, {"partition": -1}], "partitions": 5}}}
    with pytest.raises(SeedError) as caught:
        read_seeds(value, lines, "seeds.yaml")
    assert str(caught.value).startswith("seeds.yaml:6: topics.t.records[1].partition: ")
    assert caught.value.line == 6
    with pytest.raises(SeedError) as caught:
        read_seeds({"topics": {"t": {"settings": 5}}}, lines, "seeds.yaml")
    assert caught.value.line == 3
    with pytest.raises(SeedError) as caught:
        read_seeds({"topics": 5})
    assert str(caught.value).startswith("topics: names with values expected, and there is 5")
    assert caught.value.line is None


@pytest.mark.parametrize(
    ("value", "shown"), [("x" * 58, repr("x" * 58)), ("x" * 59, repr("x" * 59)[:57] + "...")]
)
def test_a_long_value_is_not_shown_whole(value, shown):
    assert refused({"topics": value}).endswith(f"and there is {shown}")
