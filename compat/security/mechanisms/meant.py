"""Differences between the logins of Apache Kafka and of Barnabas that are meant."""

from __future__ import annotations

from compat.kit.compare import Meant

MEANT: tuple[Meant, ...] = ()
