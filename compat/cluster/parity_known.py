"""Differences between a broker of Kafka's and one of ours in one quorum that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

KNOWN: tuple[KnownDifference, ...] = ()
