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
def test_unknown_setting_or_interval_out_of_bounds_is_invalid(own: dict[str, str], words: str) -> None:
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
        ({"match": r"client_id=(a|b)\1"}, r'it refers back to a group, "\\1"'),
        ({"match": "client_id=(?!web).*"}, "it looks ahead or behind"),
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
        (r"client_id=a\s\u0062", "client_id", "a\vb", "a\u00a0b"),
    ],
)
def test_a_pattern_is_of_the_whole_value(item: str, key: str, taken: str, refused: str) -> None:
    name, pattern = parse_match(item)
    assert name == key
    assert pattern.fullmatch(taken)
    assert not pattern.fullmatch(refused)


def test_a_pattern_is_matched_in_linear_time() -> None:
    _, pattern = parse_match("client_id=(a|aa)*b")
    assert not pattern.fullmatch("a" * 5_000)
