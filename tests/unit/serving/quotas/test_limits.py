"""The most precise limit applies, to all clients that share it, and idle clients are forgotten."""

import pytest

from barnabas.serving.quotas.clients import ClientQuotas
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.serving.quotas.kept import Kept
from barnabas.serving.quotas.limits import Limits, Share
from barnabas.serving.quotas.rate import Rate

RATE = "producer_byte_rate"
BOTH, OWN, EACH = Share("alice", "app"), Share("alice", ""), Share("", "app")

ORDER = [
    (QuotaEntity("alice", "app"), BOTH),
    (QuotaEntity("alice", ""), BOTH),
    (QuotaEntity("alice"), OWN),
    (QuotaEntity("", "app"), BOTH),
    (QuotaEntity("", ""), BOTH),
    (QuotaEntity(""), OWN),
    (QuotaEntity(client_id="app"), EACH),
    (QuotaEntity(client_id=""), EACH),
]


def limits_of(quotas):
    limits = Limits(RATE)
    limits.follow({entity: {RATE: value} for entity, value in quotas.items()}, list(quotas))
    return limits


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_what_is_set_most_precisely_applies(first):
    limits = limits_of({entity: float(number) for number, (entity, _) in enumerate(ORDER) if number >= first})
    assert limits.applying_to("alice", "app") == (ORDER[first][1], float(first))


def test_other_users_and_clients_have_no_limit():
    limits = limits_of({QuotaEntity("bob"): 1.0, QuotaEntity("alice", "other"): 1.0})
    assert limits.applying_to("alice", "app") == (EACH, None)


def test_a_default_for_client_ids_is_not_for_clients_without_one():
    assert limits_of({QuotaEntity(client_id=""): 1.0}).applying_to("alice", "")[1] is None
    assert limits_of({QuotaEntity("alice", ""): 1.0}).applying_to("alice", "")[1] is None
    assert limits_of({QuotaEntity("alice"): 1.0}).applying_to("alice", "") == (OWN, 1.0)


def test_a_quota_of_another_kind_does_not_hide_one():
    limits = Limits(RATE)
    quotas = {QuotaEntity("alice", "app"): {"consumer_byte_rate": 5.0}, QuotaEntity("alice"): {RATE: 7.0}}
    limits.follow(quotas, quotas)
    assert limits.applying_to("alice", "app") == (OWN, 7.0)


def test_limits_are_set_as_long_as_anybody_has_one():
    limits = limits_of({QuotaEntity("alice"): 1.0, QuotaEntity("bob"): 1.0})
    assert limits.is_set
    limits.follow({QuotaEntity("bob"): {RATE: 2.0}}, [QuotaEntity("alice"), QuotaEntity("bob")])
    assert limits.is_set
    assert limits.applying_to("bob", "") == (Share("bob", ""), 2.0)
    limits.follow({}, [QuotaEntity("bob")])
    assert not limits.is_set
    limits.follow({QuotaEntity(ip="::1"): {"connection_creation_rate": 1.0}}, [QuotaEntity(ip="::1")])
    assert not limits.is_set


def client_quotas(quotas):
    client_quotas = ClientQuotas(samples=11, window_ms=1000, mutation_samples=11, mutation_window_ms=1000)
    client_quotas.follow(quotas, quotas)
    return client_quotas


def test_all_clients_of_a_user_are_counted_together():
    quotas = client_quotas({QuotaEntity("alice"): {RATE: 100.0}})
    first, other = quotas.produce.of("alice", "a", 0), quotas.produce.of("alice", "b", 0)
    assert first is other is not None
    assert quotas.produce.of("bob", "a", 0) is None
    assert quotas.fetch.of("alice", "a", 0) is None


def test_a_limit_that_changes_applies_to_what_was_counted_before():
    quotas = client_quotas({QuotaEntity("alice"): {RATE: 100.0}})
    quotas.produce.of("alice", "a", 0).counted.record(5000, 0)
    quotas.follow({QuotaEntity("alice"): {RATE: 1000.0}}, [QuotaEntity("alice")])
    meter = quotas.produce.of("alice", "a", 0)
    assert meter.limit == 1000.0
    assert meter.counted.per_second(0) == 500


def test_a_client_that_invents_client_ids_takes_bounded_memory():
    quotas = client_quotas({QuotaEntity(client_id=""): {RATE: 100.0}})
    for number in range(50_000):
        quotas.produce.of("alice", f"client-{number}", number // 100)
    assert len(quotas.produce.meters()) <= 10_000
    assert len(quotas.produce._clients) <= 5_000


def test_unused_limits_are_forgotten_and_used_ones_stay():
    quotas = client_quotas({QuotaEntity(client_id=""): {RATE: 100.0}})
    for second in range(0, 200, 5):
        quotas.produce.of("u", "busy", second * 1000).counted.record(1, second * 1000)
        quotas.produce.of("u", f"idle-{second}", second * 1000)
    assert len(quotas.produce.meters()) < 20
    assert quotas.produce.of("u", "busy", 200_000).counted.per_second(200_000) > 0


def test_debts_are_remembered_until_they_are_paid():
    quotas = client_quotas({QuotaEntity(client_id=""): {"controller_mutation_rate": 1.0}})
    meter = quotas.mutation.of("u", "debtor", 0)
    meter.counted.take(1011, meter.limit, 0)
    for second in range(0, 900, 10):
        quotas.mutation.of("u", f"other-{second}", second * 1000)
    assert quotas.mutation.of("u", "debtor", 900_000).counted.throttle_ms(1.0, 900_000) == 100_000


def test_least_recently_used_limits_go_first_when_too_many():
    kept = Kept(lambda _, now_ms: Rate(11, 1000, now_ms), kept_max=10)
    for number in range(100):
        kept.get("always", 0).record(1, 0)
        kept.get(number, 0).record(1, 0)
    assert len(kept) <= 20
    assert kept.get("always", 0).per_second(0) == pytest.approx(10.0)
