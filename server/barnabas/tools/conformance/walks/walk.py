"""State and steps that all random walks share: choices that follow from a number, the steps so far, commits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Self

from barnabas.tools.conformance.tables.groups import committing
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import COORDINATOR_COMES
from barnabas.wire.generated.errors import ErrorCode

STEPS_SHOWN = 12
Attempt = tuple[dict[str, Any], str]
"""Fields of a request that are changed, and the name of the error code that must be answered."""


@dataclass
class Walk:
    """A model of the broker's content, and the steps that have led to it; each kind of walk adds its own."""

    trial: Trial
    random: random.Random
    steps: list[str] = field(default_factory=list)
    """The steps so far, for the message of a failure."""

    @classmethod
    def of(cls, trial: Trial) -> Self:
        """Return a walk at its beginning, with choices that follow from the case's number."""
        return cls(trial, random.Random(trial.number))

    def step(self, text: str) -> None:
        """Record the next step."""
        self.steps.append(text)

    def check(self, holds: bool, otherwise: str) -> None:
        """Fail with the steps that led here."""
        self.trial.check(holds, f"{otherwise}; after: {'; '.join(self.steps[-STEPS_SHOWN:])}")

    def check_code(self, code: int, *expected: str) -> None:
        """Fail unless an error code has one of these names."""
        self.check(code_name(code) in expected, f"answered {code_name(code)}, not {' or '.join(expected)}")


NO_ERROR = ErrorCode.NONE.name


async def commit_offset(
    walk: Walk,
    group: str,
    topic: tuple[str, bytes],
    partition: int,
    offset: int,
    *expected: str,
    **member: Any,
) -> None:
    """Commit an offset; `expected` are the allowed error codes, success by default."""
    entry = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    asked = committing(walk.trial, group) | member
    asked |= {"topics": [{"name": topic[0], "topic_id": topic[1], "partitions": [entry]}]}
    answer = await walk.trial.until(
        "OffsetCommit",
        asked,
        lambda response: response.topics[0].partitions[0].error_code not in COORDINATOR_COMES,
        "commit",
    )
    walk.check_code(answer.topics[0].partitions[0].error_code, *(expected or (NO_ERROR,)))
