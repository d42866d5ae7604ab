"""The settings of a subscription to clients' metrics: what Kafka takes, and with which error it refuses the rest."""

from __future__ import annotations

import pytest

from barnabas.config.client_metrics import MATCH_KEYS, check, parse_match
from barnabas.config.setting import SettingError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"interval.ms": "100"},
        {"interval.ms": "3600000"},
        {"match": ""},
        {"metrics": "org.apache.kafka.,*"},
        {"metrics": "not=a.pattern("},
        {"match": ",".join(f"{key}=x" for key in sorted(MATCH_KEYS)), "interval.ms": "1000", "metrics": "*"},
    ],
)
def test_what_a_subscription_may_have(own: dict[str, str]) -> None:
    check(own)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"interval.ms": "99"}, "interval.ms=99: from 100 to 3600000"),
        ({"interval.ms": "3600001"}, "interval.ms=3600001: from 100 to 3600000"),
        ({"interval": "1000"}, "unknown setting of client metrics 'interval'"),
    ],
)
def test_an_unknown_setting_and_an_interval_out_of_bounds_are_invalid_requests(
    own: dict[str, str], words: str
) -> None:
    with pytest.raises(RequestError, match=words) as refused:
        check({"metrics": "*", **own})
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"interval.ms": "soon"}, "interval.ms=soon: a whole number"),
        ({"match": "colour=red"}, "one of client_id, "),
        ({"match": "client_id"}, "with =pattern expected"),
        ({"match": "client_id="}, "with =pattern expected"),
        ({"match": "client_id=a=b"}, "with =pattern expected"),
        ({"match": "="}, "with =pattern expected"),
        ({"match": "client_id=x,client_id=("}, "no regular expression"),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_invalid_setting(own: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        check(own)


@pytest.mark.parametrize(
    ("item", "key", "taken", "refused"),
    [
        ("client_id=app-.*", "client_id", "app-1", "my-app-1"),
        (" client_software_version = 3\\.[0-9] ", "client_software_version", "3.7", "3.70"),
        ("client_id=a==", "client_id", "a", "a="),
        (r"client_id=(a|b)\1", "client_id", "aa", "ab"),
    ],
)
def test_a_pattern_is_of_the_whole_value(item: str, key: str, taken: str, refused: str) -> None:
    found, pattern = parse_match(item)
    assert found == key
    assert pattern.fullmatch(taken)
    assert not pattern.fullmatch(refused)


def test_a_pattern_is_matched_in_linear_time_unless_it_refers_back() -> None:
    _, linear = parse_match("client_id=(a|aa)*b")
    assert type(linear).__module__.startswith(("re2", "_re2"))
    assert not linear.fullmatch("a" * 5_000)
