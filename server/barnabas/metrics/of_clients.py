"""Metrics that clients have pushed (KIP-714), as families. Pure.

The rule: a client chooses the names and labels of its metrics, but they cannot be confused with those of the broker or of
another client: names that are not those of Kafka's clients begin with `pushed_`, and our labels override the client's.
"""

from __future__ import annotations

import re

from barnabas.metrics.families import COUNTER, GAUGE, INFO, TOTAL, Families, Family
from barnabas.metrics.telemetry.payload import Labels
from barnabas.metrics.telemetry.pushed import ClientMetrics
from barnabas.wire.ids import uuid_text

KAFKA_PREFIX = "org_apache_kafka_"
OTHER_PREFIX = "pushed_"
OTHER_LABEL_PREFIX = "exported_"
OURS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
"""Labels of every metric that a client has pushed."""
_RESERVED = frozenset((*OURS, "client_source_address", "client_source_port", "le", "quantile"))
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def client_families(clients: list[ClientMetrics]) -> Families:
    """Return the metrics of all clients, and a line about each client. Empties `clients`, which are copies.

    Slow for many series: for a thread.
    """
    families = Families()
    info = families.get(
        "client_metrics_instance", INFO, "A client that pushes metrics (KIP-714), and what it says of itself"
    )
    latest = families.get(
        "client_metrics_last_push_timestamp_seconds",
        GAUGE,
        "When the client has pushed metrics for the last time",
    )
    kinds: dict[str, str] = {}
    exported: dict[str, str] = {}
    clients.reverse()
    while clients:
        client = clients.pop()
        instance_id = uuid_text(client.instance_id)
        attributes = {**dict.fromkeys(OURS, ""), **client.attributes, "client_instance_id": instance_id}
        own = tuple((key, attributes[key]) for key in OURS)
        info.values[(*sorted(attributes.items()), *_others(client.resource))] = 1
        latest.values[own] = client.last_push_ms / 1000
        for (name, kind, labels), value in client.series.items():
            shown = exported.get(name)
            if shown is None:
                shown = exported[name] = metric_name(name)
            family = _family(families, kinds, shown, kind, name)
            family.values[(*own, *_others(labels))] = value
    return families


def _family(families: Families, kinds: dict[str, str], exported: str, kind: str, text: str) -> Family:
    """Return the family of a metric; if clients disagree on its kind, the later kind gets a different name."""
    base = exported.removesuffix(TOTAL)
    if kinds.setdefault(base, kind) != kind:
        return families.get(f"{base}_{kind}", kind, text)
    return families.get(base if kind == COUNTER else exported, kind, text)


def metric_name(name: str) -> str:
    """Return a metric's name in Prometheus' alphabet."""
    exported = _NOT_IN_NAMES.sub("_", name)
    return exported if exported.startswith(KAFKA_PREFIX) else OTHER_PREFIX + exported


def _others(labels: Labels) -> Labels:
    others: dict[str, str] = {}
    for key, value in labels:
        name = _NOT_IN_NAMES.sub("_", key) or "_"
        if name in _RESERVED or name.startswith("__"):
            name = OTHER_LABEL_PREFIX + name
        elif name[0].isdigit():
            name = "_" + name
        others[name] = value
    return tuple(sorted(others.items()))
