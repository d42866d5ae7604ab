"""The quotas of a broker's clients, created from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.security.authorizer import Operation
from barnabas.serving.quotas.clients import ClientQuotas
from barnabas.serving.request_quotas import BrokerQuotas

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.apis import Api
    from barnabas.serving.loop_budget import LoopBudget

WRITE_TXN_MARKERS = 27


def broker_quotas(
    config: BrokerConfig, served: Mapping[int, Api], budget: LoopBudget, now_s: Callable[[], float]
) -> BrokerQuotas:
    """Return the quotas of clients; requests between brokers are exempt."""
    clients = ClientQuotas(
        samples=config.get(settings.QUOTA_WINDOW_NUM),
        window_ms=config.get(settings.QUOTA_WINDOW_SIZE_SECONDS) * 1000,
        mutation_samples=config.get(settings.CONTROLLER_QUOTA_WINDOW_NUM),
        mutation_window_ms=config.get(settings.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS) * 1000,
    )
    between_brokers = {
        key
        for key, api in served.items()
        if any(access.operation is Operation.CLUSTER_ACTION for access in api.whole)
    }
    return BrokerQuotas(clients, budget, now_s, between_brokers | {WRITE_TXN_MARKERS})
