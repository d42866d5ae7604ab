"""Differences between Apache Kafka's client quotas and Barnabas' that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

KNOWN: tuple[KnownDifference, ...] = ()
