"""Conformance cases, and their requirements on a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[Any], Awaitable[None]]
"""Runs a case in a `trial.Trial`. Raises DiffersError, NotApplicableError."""


class DiffersError(Exception):
    """The broker does not follow the rule; the message describes its behaviour."""


class NotApplicableError(Exception):
    """The case does not apply to this broker; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Need:
    """An API that a case needs, and a version that must be advertised; -1: any."""

    api: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `id` is `GROUP/NAME`, or `API/vN/NAME`; `rule` is one sentence, `source` a KIP, a document or a release."""

    id: str
    rule: str
    source: str
    run: Run
    needs: tuple[Need, ...] = ()
    feature: tuple[str, int] | None = None
    """A feature of the cluster and the level that it must have at least."""
    with_topic: bool = False
    """True if the case needs the topic that all cases share."""
    alone: bool = False
    """True if no other case may run meanwhile."""

    @property
    def group(self) -> str:
        """The API or the suite that it belongs to."""
        return self.id.partition("/")[0]


def needs(*apis: str, **versions: int) -> tuple[Need, ...]:
    """Return the requirements of a case: APIs in any version, and APIs in a certain one."""
    return (*map(Need, apis), *(Need(api, version) for api, version in versions.items()))
