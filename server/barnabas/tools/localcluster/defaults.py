"""Defaults of a cluster that is all on one machine."""

from __future__ import annotations

SESSION_MS = 6000
"""Milliseconds that a killed broker is taken for alive: shorter than Kafka's 18 s, since all is on one machine."""
COPIES_MAX = 3
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
ON_ZOOKEEPER = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "controlled.shutdown.retry.backoff.ms": "500",
}
OF_CONTROLLERS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "150",
}
"""Controllers on one machine answer each other soon: the first election at a start, and others, need not wait a second."""


def settings_of(brokers: int) -> dict[str, str]:
    """Return settings for as many brokers with replicas of each other.

    There are up to three replicas, all but one of which must have acknowledged records.
    """
    copies, least = min(brokers, COPIES_MAX), min(brokers, COPIES_MAX - 1)
    return {
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(least),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(least),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(least),
    }
