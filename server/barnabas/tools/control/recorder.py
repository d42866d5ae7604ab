"""Recorder of the last requests of clients and their answers; decoded into JSON when they are read.

The rule: bounded in number and in size; secrets are masked, and records are counted, not kept. A request that
is not read is not decoded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from copy import copy
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from barnabas.records.errors import RecordsError
from barnabas.serving import apis
from barnabas.wire import registry
from barnabas.wire.extent import has_more_entries
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.serving.context import RequestContext
    from barnabas.serving.request_parts import Handler, Interceptor
    from barnabas.tools.faults.naming import NameOf

RECORDED_MAX = 10_000
KEPT_ENTRIES_MAX = 100
"""A message with more entries of arrays is kept as JSON, which is cut."""
SHOWN_TOPICS_MAX = 20
COUNTED_BYTES_MAX = 4 << 20
"""Bytes of a request up to which its records are counted, by the headers of its batches."""
NAMES_MAX = 2_000
"""Partitions, and groups, of a request by which it is selected; the first ones that it names."""
WIDE_ENTRIES_MIN = 20_000
PRODUCE, SHARE_FETCH = 0, 78
_SECRET = frozenset((32, 33, 36, 38, 39, 40, 41, 44, 51))
"""APIs with messages that may hold credentials: masked at once."""


class Recorded:
    """One request; `response` is None until it is answered, or for ever without an answer."""

    __slots__ = (
        "_codes", "_groups", "_name_of", "_request", "_response", "_topics", "api_key", "at_ms", "bytes", "client_id",
        "connection_id", "correlation_id", "id", "is_answered", "ms", "principal", "records", "version",
    )  # fmt: skip

    def __init__(self, number: int, context: RequestContext, request: Any, name_of: NameOf) -> None:
        self.id = number
        self.at_ms = context.now_ms
        self.connection_id = context.connection.connection_id
        self.client_id = context.client_id
        self.principal = context.connection.principal
        self.api_key = context.api_key
        self.version = context.api_version
        self.correlation_id = context.correlation_id
        self.is_answered = False
        self.ms: float | None = None
        """Time until it was answered."""
        self.records: int | None = None
        """Records of a Produce request, and bytes of records of that or of what is fetched; None for other APIs."""
        self.bytes: int | None = None
        self._name_of = name_of
        self._request = request
        self._response: Any = None
        self._topics: frozenset[str] | None = None
        self._groups: frozenset[str] | None = None
        self._codes: tuple[int, ...] | None = ()

    @property
    def api(self) -> str:
        """The name of the API."""
        return registry.name_of(self.api_key)

    @property
    def request(self) -> dict[str, Any]:
        """The request as JSON."""
        if not isinstance(self._request, dict):
            self._look()
            self._request = _as_json(self._request)
        request: dict[str, Any] = self._request
        return request

    @property
    def response(self) -> dict[str, Any] | None:
        """The answer as JSON."""
        if self._response is not None and not isinstance(self._response, dict):
            _ = self.error_codes
            self._response = _as_json(self._response)
        response: dict[str, Any] | None = self._response
        return response

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the request names."""
        self._look()
        assert self._topics is not None
        return self._topics

    @property
    def groups(self) -> frozenset[str]:
        """The groups that the request names."""
        self._look()
        assert self._groups is not None
        return self._groups

    @property
    def error_codes(self) -> tuple[int, ...]:
        """The nonzero error codes in the answer, each once; a very wide answer is not searched."""
        if self._codes is None and has_more_entries(self._response, WIDE_ENTRIES_MIN):
            self._codes = ()
        if self._codes is None:
            from barnabas.tools.inspection.errors import error_codes

            self._codes = tuple(sorted({error.code for error in error_codes(self._response)}))
        return self._codes

    def _look(self) -> None:
        """Collect the names in the request, before it is converted to JSON."""
        if self._topics is None:
            from barnabas.tools.faults import naming

            pairs = islice(naming.topic_partitions(self._request, self._name_of), NAMES_MAX)
            self._topics = frozenset(topic for topic, _ in pairs)
            self._groups = frozenset(islice(naming.groups(self._request), NAMES_MAX))

    def failed(self, code: int) -> None:
        """Note the error code with which the whole request is refused."""
        self._codes = (code,)

    def answered(self, response: Any) -> None:
        """Note the answer, None without one. Large or possibly secret messages are converted to JSON immediately."""
        self.is_answered = True
        key, request = self.api_key, self._request
        is_secret = key in _SECRET
        if is_secret or (not isinstance(request, dict) and has_more_entries(request, KEPT_ENTRIES_MAX)):
            _ = self.request
        elif key == PRODUCE and not isinstance(request, dict):
            self.records, self.bytes = _sizes(request, "topic_data", "partition_data", is_counted=True)
            self._request = _with_counts(request, "topic_data", "partition_data")
        if response is None:
            return
        self._codes = None
        self._response = response
        if is_secret or has_more_entries(response, KEPT_ENTRIES_MAX):
            _ = self.response
        elif key in (apis.FETCH, SHARE_FETCH):
            self.bytes = _sizes(response, "responses", "partitions")[1]
            self._response = _with_counts(response, "responses", "partitions")

    def at_a_glance(self) -> dict[str, Any]:
        """Return an overview as JSON: topics, records and their bytes, time."""
        topics = sorted(self.topics)
        return {
            "topics": topics[:SHOWN_TOPICS_MAX],
            "topics_total": len(topics),
            "records": self.records,
            "bytes": self.bytes,
            "ms": self.ms,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the exchange as JSON."""
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


def _as_json(message: Any) -> Any:
    """Return a message as JSON."""
    from barnabas.tools.inspection.messages import as_json

    return as_json(message)


def _sizes(message: Any, topics: str, partitions: str, *, is_counted: bool = False) -> tuple[int | None, int]:
    """Return the number of records in a message, None where they are not counted, and their bytes."""
    contents = [
        partition.records
        for topic in getattr(message, topics)
        for partition in getattr(topic, partitions)
        if partition.records is not None
    ]
    size = sum(map(len, contents))
    if not is_counted or size > COUNTED_BYTES_MAX:
        return None, size
    from barnabas.records.batch import iter_batches  # of which a start needs nothing

    try:
        counts = [header.records_count for data in contents for _, header in iter_batches(data)]
    except RecordsError:
        return None, size
    return (
        None if any(count < 0 for count in counts) else sum(counts)
    ), size  # compressed ones of old formats


def _counted(records: Any) -> FileRegion:
    """Return a placeholder for records: their size."""
    return FileRegion(-1, 0, len(records), None)


def _with_counts(message: Any, topics: str, partitions: str) -> Any:
    """Return a message without its records, which others still need; the arguments name its fields."""
    copied = copy(message)
    kept_topics = []
    for topic in getattr(message, topics):
        kept = copy(topic)
        kept_partitions = []
        for partition in getattr(topic, partitions):
            kept_partition = copy(partition)
            if kept_partition.records is not None:
                kept_partition.records = _counted(kept_partition.records)
            kept_partitions.append(kept_partition)
        setattr(kept, partitions, kept_partitions)
        kept_topics.append(kept)
    setattr(copied, topics, kept_topics)
    return copied


class Filter(NamedTuple):
    """Conditions on requests that are selected; None for all. Names are patterns with `*` and `?`."""

    api: str | None = None
    version: int | None = None
    client_id: str | None = None
    topic: str | None = None
    group: str | None = None
    error_code: int | None = None
    since: int = 0
    """Those with a larger id."""

    def takes(self, request: Recorded) -> bool:
        """Return whether a request is selected."""
        return (
            request.id > self.since
            and (self.api is None or request.api.lower() == self.api.lower())
            and (self.version is None or request.version == self.version)
            and (self.client_id is None or fnmatchcase(request.client_id or "", self.client_id))
            and (self.topic is None or any(fnmatchcase(name, self.topic) for name in request.topics))
            and (self.group is None or any(fnmatchcase(name, self.group) for name in request.groups))
            and (self.error_code is None or self.error_code in request.error_codes)
        )


class Recorder:
    """The last `count_max` requests; `intercept` wraps the handler."""

    def __init__(self, count_max: int = RECORDED_MAX) -> None:
        self._kept: deque[Recorded] = deque(maxlen=count_max)
        self._count = 0
        self._changed: trio.Event | None = None
        """Set at the next change, where a task waits for it."""
        self._broker: Broker | None = None

    def attach(self, broker: Broker) -> None:
        """Learn the names of topic ids from this broker."""
        self._broker = broker

    @property
    def last_id(self) -> int:
        """The id of the newest request, 0 before the first one; `since` it select later ones."""
        return self._count

    def clear(self) -> None:
        """Forget all requests; ids continue."""
        self._kept.clear()

    def find(self, selection: Filter | None = None, *, limit: int | None = None) -> list[Recorded]:
        """Return the selected requests, oldest first; the newest `limit` of them."""
        requests = [exchange for exchange in self._kept if selection is None or selection.takes(exchange)]
        return requests if limit is None else requests[len(requests) - min(limit, len(requests)) :]

    async def wait(
        self,
        selection: Filter,
        matches: Callable[[Recorded], bool] = lambda _: True,
        *,
        timeout_s: float,
        is_answered: bool = True,
    ) -> Recorded | None:
        """Wait for a request that is selected and `matches`, answered if `is_answered`; None at the timeout.

        The timeout is in real time, however a virtual clock runs or stands still.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            for request in self.find(selection):
                if (request.is_answered or not is_answered) and matches(request):
                    return request
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            if self._changed is None:
                self._changed = trio.Event()
            with trio.move_on_after(left_s):
                await self._changed.wait()

    def around(self, inner: Interceptor | None) -> Interceptor:
        """Return an interceptor that records, and calls `inner`, if set, for the answer."""

        async def intercept(context: RequestContext, request: Any, handler: Handler) -> Any:
            self._count += 1
            recorded = Recorded(self._count, context, request, self._names())
            self._kept.append(recorded)
            if self._changed is not None:
                self._tell()
            response = None
            began_s = time.perf_counter()
            try:
                if inner is None:
                    response = await handler(context, request)
                else:
                    response = await inner(context, request, handler)
            except Exception as error:
                code = getattr(error, "code", None)
                if isinstance(code, int):
                    recorded.failed(code)
                raise
            finally:
                recorded.ms = round((time.perf_counter() - began_s) * 1_000, 3)
                recorded.answered(response)
                if self._changed is not None:
                    self._tell()
            return response

        return intercept

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _names(self) -> NameOf:
        """Return a function for the present names of topics."""
        return self._broker.services.metadata.image.topic_name if self._broker is not None else _no_name


def _no_name(_topic_id: bytes) -> None:
    return None
