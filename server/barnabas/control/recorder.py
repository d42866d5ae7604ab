"""What clients have asked and were answered, decoded, the last so many of them.

The rule: bounded in number and in size; secrets are masked, and records are counted, not kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import trio

from barnabas.faults import naming
from barnabas.wire import registry
from barnabas.wire.primitives import ZERO_UUID
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.pipeline import Handler, Interceptor
    from barnabas.requests.context import RequestContext

RECORDED_MAX = 10_000
ENTRIES_MAX = 1000
"""So many entries of arrays of one request or answer are kept."""
TEXT_CHARACTERS_MAX = 1000
SECRETS = frozenset(("auth_bytes", "hmac", "salted_password", "salt", "session_token", "password"))
"""Fields that let somebody log in."""
MASK = "***"
_SECRET_SETTINGS = ("password", "secret", "jaas", "keystore.key", "credential")


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
            recorded.error_codes = tuple(sorted({code for code in _codes(recorded.response) if code}))
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _name_of(self, topic_id: bytes) -> str | None:
        return self._broker.services.metadata.image.topic_name(topic_id) if self._broker is not None else None


def as_json(message: Any) -> dict[str, Any]:
    """Return a request or answer as JSON: names as in Python, ids as in Kafka's tools, secrets masked, records counted."""
    left = [ENTRIES_MAX]
    found: dict[str, Any] = _plain(message, "", left)
    return found


def _plain(value: Any, name: str, left: list[int]) -> Any:
    if is_dataclass(value):
        is_secret = any(word in str(getattr(value, "name", "")) for word in _SECRET_SETTINGS)
        found = {}
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name == "unknown_tagged_fields" and inner is None:
                continue
            found[field.name] = (
                MASK if is_secret and field.name == "value" and inner else _plain(inner, field.name, left)
            )
        return found
    if name in SECRETS and value:
        return MASK
    if isinstance(value, list):
        items = []
        for item in value:
            if left[0] <= 0:
                items.append("...")
                break
            left[0] -= 1
            items.append(_plain(item, name, left))
        return items
    if isinstance(value, dict):
        return {str(key): _plain(inner, name, left) for key, inner in value.items()}
    if isinstance(value, str):
        return value[:TEXT_CHARACTERS_MAX]
    if isinstance(value, bytes | bytearray | memoryview | FileRegion):
        return _plain_bytes(value, name)
    return value


def _plain_bytes(value: bytes | bytearray | memoryview | FileRegion, name: str) -> Any:
    """Return an id as text, and the size of anything else."""
    if isinstance(value, bytes) and len(value) == len(ZERO_UUID) and name.endswith("id"):
        from barnabas.ids import uuid_text

        return uuid_text(value)
    return {"bytes": len(value)}


def _codes(value: Any) -> Iterator[int]:
    """Yield every error code in an answer."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "error_code" and isinstance(inner, int):
                yield inner
            else:
                yield from _codes(inner)
    elif isinstance(value, list):
        items: Iterable[Any] = value
        for item in items:
            yield from _codes(item)
