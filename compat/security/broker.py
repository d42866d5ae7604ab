"""Barnabas with an authorizer that follows a fixed table of rules: python -m compat.security.broker server.properties.

There is no such setting for users: this assembles a broker as `barnabas serve` does, with another authorizer.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterable
from pathlib import Path

import trio

from barnabas.broker.app import Broker
from barnabas.broker.assembly import assembled
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.security.authorizer import Operation, Requester, ResourceType
from compat.security.rules import is_allowed


class Rules:
    """The authorizer: the same rules as Kafka's ACLs."""

    def allows(self, _: Requester, operation: Operation, resource_type: ResourceType, name: str, /) -> bool:
        """Look the rule up."""
        return is_allowed(operation.name, resource_type.name, name)

    def allows_on_any(self, _: Requester, operation: Operation, resource_type: ResourceType, /) -> bool:
        """Look at a resource without rules of its own."""
        return is_allowed(operation.name, resource_type.name, "any")

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


async def _serve(path: Path) -> None:
    lines = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    config = BrokerConfig({name: value for name, _, value in lines})
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with (
            assembled(config, real_environment(), authorizer=Rules()) as broker,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_stop, signals, broker, nursery.cancel_scope)
            await nursery.start(broker.serve)
            print(f"barnabas is ready: {broker.bootstrap}", flush=True)


async def _stop(signals: AsyncIterable[int], broker: Broker, scope: trio.CancelScope) -> None:
    async for _ in signals:
        broker.stop()
        scope.cancel()


if __name__ == "__main__":
    trio.run(_serve, Path(sys.argv[1]))
