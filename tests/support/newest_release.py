"""APIs that the newest release of Apache Kafka serves, and a broker without `kafka.version` does not."""

from __future__ import annotations

from barnabas.config import releases
from barnabas.serving.release import KAFKA_4, release

NEWEST = releases.NAMES[-1]


def only_newest() -> list[int]:
    """Return the keys of the APIs of which only the newest release has the last version."""
    return [
        key
        for key, api in release(NEWEST).apis.items()
        if key not in KAFKA_4.apis or KAFKA_4.apis[key].max_version < api.max_version
    ]
