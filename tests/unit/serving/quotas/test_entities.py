"""Quotas: which entities and values there are, what a filter matches, and how connections are counted."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest

from barnabas.serving.quotas.clients import ClientQuotas
from barnabas.serving.quotas.connections import AddressLimits, ConnectionRates
from barnabas.serving.quotas.entities import (
    ANY,
    CLIENT_ID,
    DEFAULT,
    EXACT,
    IP,
    USER,
    QuotaEntity,
    QuotaFilter,
    altered,
    entity_of,
    in_order,
    normal_ip,
)
from barnabas.serving.quotas.kept import KEPT_MAX, Kept
from barnabas.serving.quotas.token_bucket import TokenBucket
from barnabas.wire.generated.errors import ErrorCode
from tests.support.refusals import code_of

INVALID = ErrorCode.INVALID_REQUEST

# --- entities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([(USER, "u")], QuotaEntity("u")),
        ([(USER, None)], QuotaEntity("")),
        ([(CLIENT_ID, "c")], QuotaEntity(client_id="c")),
        ([(USER, "u"), (CLIENT_ID, None)], QuotaEntity("u", "")),
        ([(CLIENT_ID, "c"), (USER, None)], QuotaEntity("", "c")),
        ([(IP, "10.0.0.1")], QuotaEntity(ip="10.0.0.1")),
        ([(IP, None)], QuotaEntity(ip="")),
    ],
)
def test_entity_is_named_by_its_parts_in_kafkas_order(parts, entity):
    assert entity_of(parts) == entity
    assert dict(entity.parts) == dict(parts)
    assert list(entity.parts) == sorted(parts), "client ids come before users"


@pytest.mark.parametrize(
    "parts",
    [
        [], [("group", "g")], [(USER, "")], [(USER, "u"), (CLIENT_ID, "")], [(IP, "10.0.0.1"), (USER, "u")],
        [(IP, None), (CLIENT_ID, "c")], [(IP, "host")], [(IP, "10.0.0.256")],
    ],
)  # fmt: skip
def test_what_is_no_entity_is_refused(parts):
    assert code_of(entity_of, parts) == INVALID


def test_parts_come_in_kafkas_order_and_others_after_them():
    parts = {"x": "1", USER: "u", IP: None, CLIENT_ID: "c"}
    assert list(in_order(parts)) == [(CLIENT_ID, "c"), (USER, "u"), ("x", "1"), (IP, None)]
    assert list(in_order({USER: "u"})) == [(USER, "u")]


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("0:0::1", "::1"), ("host", None), ("", None)],
)  # fmt: skip
def test_addresses_are_as_sockets_show_them(text, address):
    assert normal_ip(text) == address


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "is_good"),
    [
        ("producer_byte_rate", 1.0, True),
        ("producer_byte_rate", 0.0, False),
        ("producer_byte_rate", -1.0, False),
        ("producer_byte_rate", math.nan, False),
        ("producer_byte_rate", 1.5, False),
        ("producer_byte_rate", 1.0000005, True),
        ("producer_byte_rate", 1.000002, False),
        ("consumer_byte_rate", 2.0**63, True),
        ("consumer_byte_rate", 2.0**64, False),
        ("consumer_byte_rate", math.inf, False),
        ("request_percentage", 0.5, True),
        ("request_percentage", math.inf, True),
        ("controller_mutation_rate", 1.5, True),
        ("controller_mutation_rate", 0.0, False),
        ("connection_creation_rate", 1.0, False),
        ("bandwidth", 1.0, False),
    ],
)
def test_each_quota_has_its_values(name, value, is_good):
    if is_good:
        assert altered(QuotaEntity("u"), {}, [(name, value)]) == {name: value}
    else:
        assert code_of(altered, QuotaEntity("u"), {}, [(name, value)]) == INVALID


@pytest.mark.parametrize(
    ("value", "is_good"), [(1.0, True), (2.0**31 - 1, True), (2.0**31, False), (1.5, False), (0.0, False)]
)
def test_addresses_have_a_rate_of_connections_and_nothing_else(value, is_good):
    entity = QuotaEntity(ip="10.0.0.1")
    if is_good:
        assert altered(entity, {}, [("connection_creation_rate", value)]) == {
            "connection_creation_rate": value
        }
    else:
        assert code_of(altered, entity, {}, [("connection_creation_rate", value)]) == INVALID
    assert code_of(altered, entity, {}, [("producer_byte_rate", 1.0)]) == INVALID


def test_unnamed_quotas_stay_and_each_is_altered_once():
    before = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    after = altered(QuotaEntity("u"), before, [("producer_byte_rate", None), ("request_percentage", 3.0)])
    assert after == {"consumer_byte_rate": 2.0, "request_percentage": 3.0}
    assert before == {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    assert altered(QuotaEntity("u"), {}, [("request_percentage", None), ("unknown", None)]) == {}
    for value in (1.0, None):
        twice = [("producer_byte_rate", 1.0), ("producer_byte_rate", value)]
        assert code_of(altered, QuotaEntity("u"), {}, twice) == INVALID


# --- filters ------------------------------------------------------------------------------------------------------

ENTITIES = [
    QuotaEntity("u"), QuotaEntity("v"), QuotaEntity(""), QuotaEntity(client_id="c"), QuotaEntity(client_id=""),
    QuotaEntity("u", "c"), QuotaEntity("u", ""), QuotaEntity("", "c"), QuotaEntity(ip="10.0.0.1"), QuotaEntity(ip=""),
]  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "components",
    [
        [], [(USER, EXACT, "u")], [(USER, EXACT, "")], [(USER, DEFAULT, None)], [(USER, ANY, None)],
        [(CLIENT_ID, EXACT, "c")], [(USER, EXACT, "u"), (CLIENT_ID, DEFAULT, None)],
        [(USER, ANY, None), (CLIENT_ID, EXACT, "c")], [(USER, ANY, None), (CLIENT_ID, ANY, None)],
        [(IP, ANY, None)], [(IP, DEFAULT, None)],
    ],
)  # fmt: skip
def test_filter_matches_its_components_and_strictly_no_others(components, strict):
    filter_ = QuotaFilter(strict)
    for component in components:
        filter_.add(*component)
    filter_.check()

    def is_asked_for(entity: QuotaEntity) -> bool:
        parts = dict(entity.parts)
        for kind, match_type, match in components:
            if kind not in parts:
                return False
            if match_type == EXACT and parts[kind] != match:
                return False
            if match_type == DEFAULT and parts[kind] is not None:
                return False
        return not strict or len(parts) == len(components)

    assert [filter_.matches(entity) for entity in ENTITIES] == [is_asked_for(entity) for entity in ENTITIES]


@pytest.mark.parametrize(
    ("component", "code"),
    [
        (("", ANY, None), INVALID),
        (("group", ANY, None), ErrorCode.UNSUPPORTED_VERSION),
        ((CLIENT_ID, EXACT, None), INVALID),
        ((CLIENT_ID, DEFAULT, "c"), INVALID),
        ((CLIENT_ID, ANY, "c"), INVALID),
        ((CLIENT_ID, 3, None), INVALID),
        ((CLIENT_ID, -1, None), INVALID),
    ],
)
def test_a_component_that_makes_no_sense_is_refused(component, code):
    assert code_of(QuotaFilter(strict=False).add, *component) == code


@pytest.mark.parametrize(
    ("first", "second"),
    list(product([(USER, EXACT, "u"), (USER, DEFAULT, None), (USER, ANY, None)], repeat=2)),
)
def test_two_components_about_one_type_are_refused(first, second):
    filter_ = QuotaFilter(strict=False)
    filter_.add(*first)
    assert code_of(filter_.add, *second) == INVALID


@pytest.mark.parametrize(("first", "second"), [(EXACT, EXACT), (ANY, EXACT), (EXACT, ANY), (ANY, ANY)])
@pytest.mark.parametrize("kind", [USER, CLIENT_ID, None])
def test_addresses_are_not_asked_for_together_with_others(first, second, kind):
    filter_ = QuotaFilter(strict=False)
    filter_.add(IP, first, "10.0.0.1" if first == EXACT else None)
    if kind is None:
        filter_.check()
    else:
        filter_.add(kind, second, "x" if second == EXACT else None)
        assert code_of(filter_.check) == INVALID


# --- connections --------------------------------------------------------------------------------------------------


def limits(**of: float) -> tuple[AddressLimits, Any]:
    """The limits of addresses, and what changes them; `default` stands for that of all."""
    quotas = {
        QuotaEntity(ip="" if ip == "default" else ip): {"connection_creation_rate": rate}
        for ip, rate in of.items()
    }
    address_limits = AddressLimits()
    assert address_limits.follow(quotas, quotas) == []
    return address_limits, quotas


def test_an_address_has_its_own_limit_or_the_default_one():
    limited, _ = limits(**{"10.0.0.1": 5.0, "::ffff:10.0.0.2": 6.0, "default": 7.0})
    assert limited.is_set
    assert limited.of("10.0.0.1") == limited.of("::ffff:10.0.0.1") == ("10.0.0.1", 5.0)
    assert limited.of("10.0.0.2") == ("10.0.0.2", 6.0)
    assert limited.of("10.0.0.3") == ("10.0.0.3", 7.0)
    assert limited.of("/tmp/socket") == ("/tmp/socket", 7.0)


@pytest.mark.parametrize("which", ["10.0.0.1", "default"])
def test_limits_are_set_as_long_as_there_is_one(which):
    limited, quotas = limits(**{which: 5.0})
    assert limited.is_set
    other = "10.0.0.2" if which == "10.0.0.1" else "10.0.0.1"
    assert limited.of(other)[1] == (None if which == "10.0.0.1" else 5.0)
    limited.follow({}, quotas)
    assert not limited.is_set
    assert limited.of("10.0.0.1")[1] is None


def test_infinite_limit_is_none_and_a_bad_address_has_no_effect():
    limited, _ = limits(**{"10.0.0.1": 2.0**31 - 1, "10.0.0.2": 2.0**31 - 2, "default": 1.0})
    assert limited.of("10.0.0.1")[1] is None
    assert limited.of("10.0.0.2")[1] == 2.0**31 - 2
    other, user = QuotaEntity(ip="host"), QuotaEntity("u")
    changed = {other: {"connection_creation_rate": 9.0}, user: {"connection_creation_rate": 9.0}}
    assert limited.follow(changed, changed) == ["host"]
    assert limited.of("host")[1] == 1.0


def rates() -> ConnectionRates:
    """11 windows of 2 s, of which ten count from the beginning: 20 s."""
    return ConnectionRates(11, 2_000, 5_000)


@pytest.mark.parametrize(
    ("broker", "listener", "wait_ms"),
    [(None, 5.0, 1_000), (5.0, 100.0, 1_000), (5.0, 5.0, 1_000), (5.0, 4.99, 1_042), (4.99, 5.0, 1_042),
     (None, 5.25, 0), (5.25, 5.25, 0), (None, 1.0, 2_000), (1.0, 100.0, 2_000)],
)  # fmt: skip
def test_connection_waits_for_broker_or_listener_up_to_a_window(broker, listener, wait_ms):
    counted = rates()
    for _ in range(104):
        counted.record("A", broker, listener, 5_000)
    waited = counted.record("A", broker, listener, 5_000)
    assert waited == wait_ms


def test_listeners_are_counted_apart_and_the_broker_together():
    counted = rates()
    for _ in range(105):
        counted.record("A", None, 5.0, 5_000)
    assert counted.record("B", 5.0, 5.0, 5_000) == 0
    for _ in range(104):
        counted.record("B", 5.0, 100.0, 5_000)
    assert counted.record("C", 5.0, 100.0, 5_000) == 1_200
    counted.take_back("C", 5_000, of_broker=True)
    assert counted.record("C", 5.0, 100.0, 5_000) == 1_200
    counted.take_back("C", 5_000, of_broker=False)
    assert counted.record("C", 5.0, 100.0, 5_000) == 1_400
    counted.take_back("A", 5_000, of_broker=False)
    assert counted.record("A", None, 5.0, 5_000) == 1_000


def test_throttled_address_is_not_counted_and_others_are_free():
    counted = rates()
    assert [counted.record_address("a", 5.0, 5_000) for _ in range(100)] == [0] * 100
    for _ in range(3):
        assert counted.record_address("a", 5.0, 5_000) == 200
    assert counted.record_address("b", 5.0, 5_000) == 0
    assert counted.record_address("a", 0.01, 5_000) == 2_000
    assert counted.record_address("a", 5.0, 60_000) == 0


# --- what is counted, and how long it is kept -----------------------------------------------------------------------


class Counted:
    """A stand-in for a client's counts: it may be forgotten unless it owes something."""

    def __init__(self, key: str, now_ms: int) -> None:
        self.key, self.made_ms, self.owes = key, now_ms, False

    def is_forgettable(self, now_ms: int) -> bool:
        return not self.owes


def test_entries_used_in_a_period_stay_and_others_expire():
    forgotten: list[int] = []
    kept: Kept[str, Counted] = Kept(Counted, period_ms=1_000)
    kept.on_forgotten = lambda: forgotten.append(len(kept))
    now_ms = 50_000
    first, debtor = kept.get("a", now_ms), kept.get("d", now_ms)
    debtor.owes = True
    assert forgotten == [0], "the first period begins"
    assert kept.get("a", now_ms + 999) is first
    assert forgotten == [0]
    assert kept.get("a", now_ms + 1_000) is first
    assert forgotten == [0, 2]
    assert {key for key, _ in kept.items()} == {"a", "d"}
    kept.get("b", now_ms + 2_000)
    assert {key for key, _ in kept.items()} == {"a", "b", "d"}
    kept.get("b", now_ms + 3_000)
    assert {key for key, _ in kept.items()} == {"b", "d"}
    assert kept.get("d", now_ms + 3_000) is debtor
    again = kept.get("a", now_ms + 3_000)
    assert (again is first, again.made_ms) == (False, now_ms + 3_000)
    assert len(kept) == 3


@pytest.mark.parametrize("count", [3, 4, 5, 20])
def test_least_recent_entries_go_and_debtors_keep_half_the_room(count):
    kept: Kept[str, Counted] = Kept(Counted, period_ms=10**9, kept_max=4)
    for number in range(count):
        kept.get(f"k{number}", 0).owes = True
    assert len(kept) <= 8
    assert {f"k{number}" for number in range(max(count - 4, 0), count)} <= {key for key, _ in kept.items()}


def test_each_client_quota_is_counted_in_its_own_windows():
    clients = ClientQuotas(samples=11, window_ms=2_000, mutation_samples=11, mutation_window_ms=1_000)
    names = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    assert [quota.name for quota in clients.every] == list(names)
    assert (clients.span_s, clients.window_ms) == (20.0, 2_000)
    everybody = QuotaEntity("")
    for name, of in zip(names, clients.every, strict=True):
        clients.follow({everybody: {name: 7.0}}, [everybody])
        assert [quota.is_set for quota in clients.every] == [quota is of for quota in clients.every]
        assert clients.is_set
        meter: Any = of.of("u", "c", 0)
        assert meter.limit == 7.0
        assert of.of("u", "d", 0) is meter, "its user has one limit"
        assert of.of("v", "c", 0) is not meter
        assert {share.user for share, _ in of.meters()} == {"u", "v"}
        clients.follow({everybody: {name: 8.0}}, [everybody])
        assert of.of("u", "c", 0) is meter
        assert meter.limit == 8.0
    clients.follow({}, [everybody])
    assert not clients.is_set
    assert clients.mutation.of("u", "c", 0) is None
    assert len(clients.mutation._clients) == 1 <= KEPT_MAX


def test_a_burst_of_changes_is_as_long_as_all_of_its_windows():
    clients = ClientQuotas(samples=11, window_ms=2_000, mutation_samples=11, mutation_window_ms=1_000)
    everybody = QuotaEntity("")
    clients.follow({everybody: {"controller_mutation_rate": 2.0}}, [everybody])
    meter: Any = clients.mutation.of("u", "c", 0)
    assert isinstance(meter.counted, TokenBucket)
    assert meter.counted.tokens(2.0, 0) == 22.0
    assert meter.is_forgettable(0)
    meter.counted.take(23, 2.0, 0)
    assert not meter.is_forgettable(0)
    assert meter.counted.throttle_ms(2.0, 0) == 500
    assert meter.counted.tokens(2.0, -1_000) == -1.0, "a clock that goes back gives nothing"
    assert meter.counted.throttle_ms(2.0, 500) == 0
    assert meter.counted.tokens(2.0, 5_000_000) == 22.0
