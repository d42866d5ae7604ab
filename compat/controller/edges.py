"""What the schemas do not tell: states that several requests lead to, limits, timeouts, APIs that a controller does not have."""

from __future__ import annotations

from collections.abc import Iterator

from compat.kit.compare import Step


def of_one_broker() -> Iterator[Step]:
    yield from ()


def of_brokers() -> Iterator[Step]:
    yield from ()


def of_quorum() -> Iterator[Step]:
    yield from ()
