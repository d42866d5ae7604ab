"""Check that a broker honours its advertised versions: each version of each API is requested once.

The rule: a version is honoured if the response decodes completely in it, and is not UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import trio

from barnabas.client.errors import ClientError
from barnabas.tools.inspection.errors import error_codes
from barnabas.tools.probing.exchanges import (
    ClosedByBrokerError,
    ExchangeError,
    NonsenseError,
    SilentError,
    Target,
    Wire,
)
from barnabas.tools.probing.harmless import BETWEEN_BROKERS, BY_KEY, Harmless, Names
from barnabas.tools.probing.messages import make
from barnabas.wire import registry

Versions = dict[int, tuple[int, int]]
UNSUPPORTED_VERSION = 35
OF_GROUPS = frozenset((8, 9, 10, 11, 12, 13, 14, 15, 25, 28, 42, 47, 68, 69, 76, 77, 88, 89, 90, 91, 92))
OF_TRANSACTIONS = frozenset((22, 24, 25, 26, 28, 65))
OF_SHARES = frozenset((83, 84, 85, 86, 87, 90, 91, 92))
"""APIs of coordinators: where one has no topic yet, a request may have the broker make it."""
METADATA, FIND_COORDINATOR, API_VERSIONS = 3, 10, 18


class Status(Enum):
    """Result for one version of one API."""

    HONOURED = "honoured"
    UNSUPPORTED = "answered with UNSUPPORTED_VERSION"
    CLOSED = "connection closed"
    SILENT = "no answer"
    NONSENSE = "answer cannot be decoded"
    NOT_TRIED = "not tried"


_STATUS_OF = {ClosedByBrokerError: Status.CLOSED, SilentError: Status.SILENT, NonsenseError: Status.NONSENSE}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One version of one API: its status, and the reason if that is not obvious; `errors` are the answer's codes."""

    key: int
    version: int
    status: Status
    reason: str = ""
    errors: tuple[int, ...] = ()
    ms: float = 0.0


async def ask_all(target: Target, versions: Versions, names: Names) -> list[Verdict]:
    """Request every advertised version, in the order of keys. Raises ClientError when the broker becomes unreachable."""
    verdicts: list[Verdict] = []
    async with _Connections(target).opened() as connections:
        for key, (low, high) in sorted(versions.items()):
            for version in range(low, high + 1):
                reason = _why_not(key, version, names)
                if reason:
                    verdicts.append(Verdict(key, version, Status.NOT_TRIED, reason))
                else:
                    verdicts.append(await _ask(connections, BY_KEY[key], key, version, names))
    return verdicts


def _why_not(key: int, version: int, names: Names) -> str:
    if not registry.is_known(key):
        return "an API that is not known here"
    if key in BETWEEN_BROKERS or key not in BY_KEY:
        return "between brokers"
    if version > registry.info(key).request_max_version:
        return "a version that is not known here"
    if version < registry.info(key).request_min_version:
        return "a version that was never published"
    if key in OF_GROUPS and not names.has_offsets_topic and not (key == FIND_COORDINATOR and version):
        return "a broker may make __consumer_offsets first"
    if key in OF_TRANSACTIONS and not names.has_transactions_topic:
        return "a broker may make __transaction_state first"
    if key in OF_SHARES and not names.has_shares_topic:
        return "a broker may make __share_group_state first"
    return ""


async def _ask(connections: _Connections, row: Harmless, key: int, version: int, names: Names) -> Verdict:
    wire = await connections.get()
    began = trio.current_time()
    try:
        answer = await wire.ask(row.request(names, version), version)
    except ExchangeError as error:
        return Verdict(key, version, _STATUS_OF[type(error)], str(error))
    finally:
        if row.ends_connection:
            wire.is_open = False
    ms = (trio.current_time() - began) * 1000
    codes = codes_of(answer)
    is_refused = codes[:1] == (UNSUPPORTED_VERSION,) and set(codes) == {UNSUPPORTED_VERSION}
    return Verdict(key, version, Status.UNSUPPORTED if is_refused else Status.HONOURED, "", codes, ms)


def codes_of(answer: Any) -> tuple[int, ...]:
    """Return the error codes in an answer that are not 0, each once."""
    return tuple(dict.fromkeys(code for code, _, _ in error_codes(answer)))


class _Connections:
    """A connection that is opened again after it has ended."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._wire: Wire | None = None
        self._opened: Any = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[_Connections]:
        try:
            yield self
        finally:
            await self._close()

    async def get(self) -> Wire:
        """Return the open connection. Raises ClientError."""
        if self._wire is None or not self._wire.is_open:
            await self._close()
            self._opened = self._target.connect()
            self._wire = await self._opened.__aenter__()
            self._wire.journal.clear()
        assert self._wire is not None
        self._wire.journal.clear()
        return self._wire

    async def _close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.__aexit__(None, None, None)


async def learn_versions(target: Target) -> tuple[Versions, Any]:
    """Ask for the versions, in the newest version of ApiVersions that the broker knows: (ranges by key, the answer).

    Raises ClientError, ExchangeError.
    """
    row = BY_KEY[API_VERSIONS]
    names = Names("", "", "")
    problem = "it answers none of them without an error"
    for version in range(registry.info(API_VERSIONS).max_stable_version, -1, -1):
        # A connection for each: brokers that do not know a version may close it, or answer nonsense.
        async with target.connect() as wire:
            try:
                answer = await wire.ask(row.request(names, version), version)
            except ExchangeError as error:
                problem = f"v{version}: {error}"
                continue
        if not answer.error_code:
            return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}, answer
    raise ClientError(f"{target.endpoint} does not say which versions it serves: {problem}")


async def ask_for_cluster(target: Target, versions: Versions, *, with_topics: bool) -> tuple[int, Any]:
    """Ask for metadata in the newest version with an answer that can be decoded: (the version, the answer).

    Raises ClientError, ExchangeError.
    """
    low, high = versions[METADATA]
    for version in range(min(high, registry.info(METADATA).max_stable_version), low - 1, -1):
        topics: list[Any] | None = None if with_topics and version else []
        values = {"topics": topics, "allow_auto_topic_creation": version < 4}
        async with target.connect() as wire:
            try:
                return version, await wire.ask(make("Metadata", version, values), version)
            except NonsenseError:
                continue
    raise ClientError(f"{target.endpoint} answers Metadata in no version so that it can be decoded")
