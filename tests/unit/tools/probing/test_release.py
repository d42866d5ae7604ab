"""A broker is recognized as a release by the APIs that it advertises, and its gaps are named for clients."""

from __future__ import annotations

from barnabas.config import releases
from barnabas.tools.probing.needs import needs_of_all
from barnabas.tools.probing.release import guess


def test_produce_from_version_0_on_is_what_kafka_4_says() -> None:
    advertised = dict(releases.versions_of("4.3"))
    advertised[0] = (0, advertised[0][1])
    assert guess(advertised).is_exact


def test_clients_lack_what_a_broker_does_not_serve() -> None:
    old = dict(releases.versions_of("0.10.0"))
    by_name = {need.client: need for need in needs_of_all(old, old, frozenset())}
    lacks = dict(by_name["kafka-clients 4.3"].lacks)
    assert "Produce v0-2 is served, v3-13 known" in lacks["produce"]
    assert "produce" in by_name["kafka-clients 0.9.0"].works
    new = releases.versions_of("4.3")
    switched_off = needs_of_all(new, new, frozenset((76,)))
    assert ("share groups", "ShareGroupHeartbeat is switched off") in switched_off[0].lacks
