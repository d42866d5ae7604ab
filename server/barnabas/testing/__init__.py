"""The public names for tests of programs that use a broker.

`start_thread` and `start_process` return a `KafkaBroker`, `open_broker` an `AsyncKafkaBroker` in the running Trio loop;
`start_cluster` returns a `KafkaCluster`, `RunningBroker` is the plain command in a process. With pytest the fixtures
`kafka_broker`, `kafka_bootstrap` and `kafka_cluster` are available (`barnabas.testing.pytest_plugin`).

The rule: a broker needs no module of this package, and none of its modules imports one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import AsyncKafkaBroker, ControlFailedError, KafkaBroker
    from barnabas.testing.cluster import KafkaCluster
    from barnabas.testing.in_process import open_broker, start_cluster, start_thread
    from barnabas.testing.process import start_cluster_process, start_process
    from barnabas.testing.records import Record, Request
    from barnabas.testing.running import BrokerFailedError, RunningBroker

_MODULES = {
    "AsyncKafkaBroker": "broker",
    "BrokerFailedError": "running",
    "ControlFailedError": "broker",
    "KafkaBroker": "broker",
    "KafkaCluster": "cluster",
    "Record": "records",
    "Request": "records",
    "RunningBroker": "running",
    "Security": "security",
    "open_broker": "in_process",
    "secured": "security",
    "start_cluster": "in_process",
    "start_cluster_process": "process",
    "start_process": "process",
    "start_thread": "in_process",
}

__all__ = [
    "AsyncKafkaBroker",
    "BrokerFailedError",
    "ControlFailedError",
    "KafkaBroker",
    "KafkaCluster",
    "Record",
    "Request",
    "RunningBroker",
    "Security",
    "open_broker",
    "secured",
    "start_cluster",
    "start_cluster_process",
    "start_process",
    "start_thread",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use: a test run that starts no broker imports none of the package's modules."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"barnabas.testing.{module}"), name)
