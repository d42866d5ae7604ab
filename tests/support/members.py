"""A consumer's membership without a consumer: a stand-in for its host, and one for its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio

from barnabas.client import ClientSettings, ConsumerSettings
from barnabas.client.errors import ClientError
from barnabas.client.topics import TopicWatch
from barnabas.client.values import TopicPartition
from barnabas.wire import registry

Places = set[TopicPartition]


class RecordingHost:
    """Records the partitions that are assigned, revoked and lost."""

    def __init__(self) -> None:
        self.assigned: Places = set()
        self.calls: list[tuple[str, Places]] = []
        self.failures: list[ClientError] = []
        self.busy = 0.0
        self.is_idle = trio.Event()

    async def add(self, places: Places) -> None:
        """Record assigned partitions."""
        self.calls.append(("add", set(places)))
        self.assigned |= places

    async def revoke(self, places: Places) -> None:
        """Record revoked partitions."""
        self.calls.append(("revoke", set(places)))
        self.assigned -= places

    async def lose(self, places: Places) -> None:
        """Record lost partitions."""
        self.calls.append(("lose", set(places)))
        self.assigned -= places

    def busy_s(self) -> float:
        """Return the seconds that the test has set."""
        return self.busy

    async def idle(self) -> None:
        """Wait until the test sets the event."""
        await self.is_idle.wait()

    def fail(self, error: ClientError) -> None:
        """Record the error."""
        self.failures.append(error)


class StandinCoordinator:
    """Stands for a client and its connection to a coordinator, with the newest versions and scripted responses."""

    def __init__(self, answer: Callable[[Any], Any], **versions: int) -> None:
        self.answer = answer
        self.versions = {registry.key_of(name): version for name, version in versions.items()}
        self.settings = ClientSettings(retry_backoff_ms=100)
        self.asked: list[Any] = []
        self.timeouts_ms: list[float | None] = []
        self.lanes: list[str] = []
        self.keys: list[tuple[str, int]] = []
        """Keys of coordinators that were looked for, with their types."""
        self.forgotten: list[str] = []
        self.features: dict[str, int] = {}
        self.peer = "peer"

    async def coordinator(self, key: str, key_type: int = 0) -> int:
        """Return an arbitrary broker id."""
        self.keys.append((key, key_type))
        return 7

    async def broker(self, _: int, *, lane: str = "") -> StandinCoordinator:
        """Return this object as the connection."""
        self.lanes.append(lane)
        return self

    def version_of(self, key: int, version_max: int | None = None) -> int:
        """Return the newest version, as a connection does."""
        newest = self.versions.get(key, registry.info(key).max_stable_version)
        return newest if version_max is None else min(newest, version_max)

    def forget_coordinator(self, group_id: str, key_type: int = 0) -> None:
        """Record the call."""
        self.forgotten.append(group_id)

    async def ask(self, request: Any, *, version: int, timeout_ms: float | None = None) -> Any:
        """Return the scripted response, or raise the scripted error; the request must be encodable in that version."""
        key = registry.key_of(type(request).__name__.removesuffix("Request"))
        assert registry.request_codec(key).encode(request, version)
        self.asked.append(request)
        self.timeouts_ms.append(timeout_ms)
        answer = self.answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer


def topics_with(**counts: int) -> Any:
    """Return metadata of topics with these partition counts, and their names as ids."""
    infos = {
        name: SimpleNamespace(
            id=name.encode().ljust(16), partitions=dict.fromkeys(range(count)), is_internal=False
        )
        for name, count in counts.items()
    }
    watch = TopicWatch(SimpleNamespace(settings=ClientSettings()))  # type: ignore[arg-type]
    watch.infos = infos  # type: ignore[assignment]
    watch.version = 1
    return watch


def settings_of(**changes: Any) -> ConsumerSettings:
    """Return settings of a member of group g."""
    return ConsumerSettings(**{"group_id": "g", **changes})
