"""Differences between Apache Kafka's client quotas and Barnabas' that are meant."""

from __future__ import annotations

from compat.kit.compare import Meant

MEANT: tuple[Meant, ...] = ()
