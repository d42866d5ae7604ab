"""Metrics of client quotas: the usage of clients with a quota, and their throttling.

The rule: names and labels are those of Kafka's MBeans (`kafka.server:type=Produce,user=...,client-id=...`); if there are
very many, only the most throttled ones are exported.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from barnabas.metrics.families import Families
    from barnabas.serving.quotas.clients import Meter, QuotaOf
    from barnabas.serving.quotas.limits import Share
    from barnabas.serving.quotas.rate import Rate
    from barnabas.serving.quotas.token_bucket import TokenBucket
    from barnabas.serving.request_quotas import BrokerQuotas

M = TypeVar("M", "Rate", "TokenBucket")

SHOWN_MAX = 500
"""Clients, or users, shown of each quota."""


def client_quota_families(families: Families, quotas: BrokerQuotas) -> None:
    """Add the present values of quotas."""
    clients, now_ms = quotas.clients, quotas.now_ms
    for kind, measure, text, quota in (
        ("produce", "byte_rate", "Bytes produced in a second", clients.produce),
        ("fetch", "byte_rate", "Bytes fetched in a second", clients.fetch),
        ("request", "request_time", "Percent of the event loop's time", clients.request),
    ):
        for (user, client_id), meter in _most_throttled(quota):
            labels = {"user": user, "client_id": client_id}
            families.gauge(f"kafka_server_{kind}_{measure}", text, meter.counted.per_second(now_ms), **labels)
            _throttling(families, kind, meter, labels)
    for (user, client_id), bucket in _most_throttled(clients.mutation):
        labels = {"user": user, "client_id": client_id}
        tokens = bucket.counted.tokens(bucket.limit, now_ms)
        families.gauge(
            "kafka_server_controllermutation_tokens",
            "Partitions that may be made or deleted at once",
            tokens,
            **labels,
        )
        _throttling(families, "controllermutation", bucket, labels)


def _throttling(
    families: Families, kind: str, meter: Meter[Rate] | Meter[TokenBucket], labels: dict[str, str]
) -> None:
    prefix = f"kafka_server_{kind}_"
    families.gauge(f"{prefix}quota", "The limit that applies", meter.limit, **labels)
    families.counter(f"{prefix}throttles", "Responses with a throttle time", meter.throttled_count, **labels)
    families.counter(f"{prefix}throttle_time_ms", "Throttle times, added up", meter.throttled_ms, **labels)


def _most_throttled(quota: QuotaOf[M]) -> list[tuple[Share, Meter[M]]]:
    return nlargest(SHOWN_MAX, quota.meters(), key=lambda item: item[1].throttled_ms)
