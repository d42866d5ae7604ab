"""What clients have asked and were answered, decoded, the last so many of them.

The rule: bounded in number and in size; secrets are masked, and records are counted, not kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import trio

from barnabas.faults import naming
from barnabas.inspection.errors import error_codes
from barnabas.inspection.messages import as_json
from barnabas.wire import registry

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.pipeline import Handler, Interceptor
    from barnabas.requests.context import RequestContext

RECORDED_MAX = 10_000


@dataclass(slots=True, eq=False)
class Recorded:
    """One request; `response` is None until it is answered, and stays so where nothing is answered."""

    id: int
    at_ms: int
    connection_id: int
    client_id: str | None
    principal: str
    api: str
    api_key: int
    version: int
    correlation_id: int
    topics: frozenset[str]
    groups: frozenset[str]
    request: dict[str, Any]
    response: dict[str, Any] | None = None
    is_answered: bool = False
    error_codes: tuple[int, ...] = ()
    """Those in the answer that are not 0, each once."""

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "id": self.id,
            "at_ms": self.at_ms,
            "connection": self.connection_id,
            "client_id": self.client_id,
            "principal": self.principal,
            "api": self.api,
            "version": self.version,
            "correlation_id": self.correlation_id,
            "request": self.request,
            "answered": self.is_answered,
            "response": self.response,
            "error_codes": list(self.error_codes),
        }


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests are meant; None where all are. Names are patterns with `*` and `?`."""

    api: str | None = None
    version: int | None = None
    client_id: str | None = None
    topic: str | None = None
    group: str | None = None
    error_code: int | None = None
    since: int = 0
    """Those with a larger id."""

    def takes(self, one: Recorded) -> bool:
        """Return whether a request is meant."""
        return (
            one.id > self.since
            and (self.api is None or one.api.lower() == self.api.lower())
            and (self.version is None or one.version == self.version)
            and (self.client_id is None or fnmatchcase(one.client_id or "", self.client_id))
            and (self.topic is None or any(fnmatchcase(name, self.topic) for name in one.topics))
            and (self.group is None or any(fnmatchcase(name, self.group) for name in one.groups))
            and (self.error_code is None or self.error_code in one.error_codes)
        )


class Recorder:
    """The last `count_max` requests; `intercept` stands around what answers them."""

    def __init__(self, count_max: int = RECORDED_MAX) -> None:
        self._kept: deque[Recorded] = deque(maxlen=count_max)
        self._count = 0
        self._changed = trio.Event()
        self._broker: Broker | None = None

    def attach(self, broker: Broker) -> None:
        """Learn the names of topic ids from this broker."""
        self._broker = broker

    @property
    def last_id(self) -> int:
        """The id of the newest request, 0 before the first one: later ones are `since` it."""
        return self._count

    def clear(self) -> None:
        """Forget all requests; ids go on."""
        self._kept.clear()

    def find(self, wanted: Filter | None = None, *, limit: int | None = None) -> list[Recorded]:
        """Return the requests that are meant, oldest first; the newest `limit` of them."""
        found = [one for one in self._kept if wanted is None or wanted.takes(one)]
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    async def wait(
        self,
        wanted: Filter,
        matches: Callable[[Recorded], bool] = lambda _: True,
        *,
        timeout_s: float,
        is_answered: bool = True,
    ) -> Recorded | None:
        """Wait for a request that is meant and `matches`, answered if so wanted; None if none comes in time.

        The time is real, however a virtual clock runs; one that stands still is waited for.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            changed = self._changed
            for one in self.find(wanted):
                if (one.is_answered or not is_answered) and matches(one):
                    return one
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            with trio.move_on_after(left_s):
                await changed.wait()

    def around(self, inner: Interceptor | None) -> Interceptor:
        """Return an interceptor that records, and has `inner` answer if it is one."""

        async def intercept(context: RequestContext, request: Any, handler: Handler) -> Any:
            recorded = self._begin(context, request)
            response = None
            try:
                if inner is None:
                    response = await handler(context, request)
                else:
                    response = await inner(context, request, handler)
            except Exception as error:
                code = getattr(error, "code", None)
                if isinstance(code, int):
                    recorded.error_codes = (code,)
                raise
            finally:
                self._end(recorded, response)
            return response

        return intercept

    def _begin(self, context: RequestContext, request: Any) -> Recorded:
        self._count += 1
        recorded = Recorded(
            self._count,
            context.now_ms,
            context.connection.connection_id,
            context.client_id,
            context.connection.principal,
            registry.name_of(context.api_key),
            context.api_key,
            context.api_version,
            context.correlation_id,
            frozenset(topic for topic, _ in naming.topic_partitions(request, self._name_of)),
            frozenset(naming.groups(request)),
            as_json(request),
        )
        self._kept.append(recorded)
        self._tell()
        return recorded

    def _end(self, recorded: Recorded, response: Any) -> None:
        recorded.is_answered = True
        if response is not None:
            recorded.response = as_json(response)
            recorded.error_codes = tuple(sorted({error.code for error in error_codes(response)}))
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _name_of(self, topic_id: bytes) -> str | None:
        return self._broker.services.metadata.image.topic_name(topic_id) if self._broker is not None else None
