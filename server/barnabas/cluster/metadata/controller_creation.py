"""Automatic creation of topics in a cluster, by a request to the controller, which may be this broker.

The rule: a topic is requested once at a time, however many requests need it. A request waits a little, and is then
answered LEADER_NOT_AVAILABLE, upon which clients retry; so an absent controller delays no request for long.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.metadata.topic_creation import default_shape
from barnabas.config import broker as settings
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import LocalTopicCreation
    from barnabas.config.loading import BrokerConfig

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.5
"""Longest wait of a request for a topic: more than a controller needs that has nothing else to do."""
CHANNEL = "topics"


@dataclass(slots=True, eq=False)
class _Creation:
    """Topics that are being created together."""

    names: tuple[str, ...]
    own: Mapping[str, str]
    """Settings that they have of their own."""
    refused: dict[str, RequestError] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)


class ControllerTopicCreation:
    """Implements `topic_creation.TopicCreation`, and follows the image (`cluster.metadata.store.Subscriber`).

    Lifecycle: `run` in a task, until cancelled; without it nothing is created.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataStore,
        broker_id: int,
        *,
        local: LocalTopicCreation | None,
        peers: Peers,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._in_progress: dict[str, _Creation] = {}
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Make topics until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def ensure(self, name: str, own: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create a topic with these own settings, unless it exists. Raises RequestError."""
        refused = await self.ensure_all([name], own)
        if name in refused:
            raise refused[name]

    async def ensure_all(
        self, names: Sequence[str], own: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, RequestError]:
        """Create missing topics with these overrides; returns the errors by name."""
        missing = [name for name in dict.fromkeys(names) if name not in self._metadata.image.topics]
        if not missing:
            return {}
        new = tuple(name for name in missing if name not in self._in_progress)
        if new and self._nursery is not None:
            creation = _Creation(new, own)
            self._in_progress.update(dict.fromkeys(new, creation))
            self._nursery.start_soon(self._carry_out, creation)
        awaited = {name: self._in_progress[name] for name in missing if name in self._in_progress}
        with trio.move_on_after(PATIENCE_SECONDS):
            for creation in set(awaited.values()):
                await creation.done.wait()
        being_made = RequestError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is being made")
        image = self._metadata.image
        return {
            name: awaited[name].refused.get(name, being_made) if name in awaited else being_made
            for name in missing
            if name not in image.topics
        }

    async def _carry_out(self, creation: _Creation) -> None:
        """Create topics, and wait until this broker has their metadata; refusals are noted."""
        try:
            with trio.move_on_after(self._config.get(settings.REQUEST_TIMEOUT_MS) / 1000):
                creation.refused.update(await self._made(creation))
                while not all(self._is_settled(name, creation) for name in creation.names):
                    await self._changed.wait()
        except (PeerUnavailableError, StorageError) as error:
            log.warning("topics are not made, %s first: %s", creation.names[0], error)
        except Exception:
            log.exception("topics are not made, %s first", creation.names[0])
        finally:
            for name in creation.names:
                del self._in_progress[name]
            creation.done.set()

    def _is_settled(self, name: str, creation: _Creation) -> bool:
        return name in creation.refused or name in self._metadata.image.topics

    async def _made(self, creation: _Creation) -> dict[str, RequestError]:
        if self._local is not None and self._metadata.image.controller_id == self._broker_id:
            return await self._local.ensure_all(creation.names, creation.own)
        response: CreateTopicsResponse = await self._peers.ask_controller(
            self._request(creation),
            timeout_s=self._config.get(settings.REQUEST_TIMEOUT_MS) / 1000,
            error_of=_error_of,
            channel=CHANNEL,
        )
        return {
            topic.name: RequestError(topic.error_code, topic.error_message or "")
            for topic in response.topics
            if topic.error_code not in _MADE
        }

    def _request(self, creation: _Creation) -> CreateTopicsRequest:
        request = CreateTopicsRequest(timeout_ms=self._config.get(settings.REQUEST_TIMEOUT_MS))
        for name in creation.names:
            shape = default_shape(self._config, name, creation.own)
            request.topics.append(
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=shape.partitions,
                    replication_factor=shape.replication_factor,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=setting, value=value)
                        for setting, value in shape.settings.items()
                    ],
                )
            )
        return request

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Wake the requests that wait for topics."""
        if delta.topics and self._in_progress:
            self._changed.set()
            self._changed = trio.Event()

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""


_MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Error codes after which the topic exists at the controller, perhaps without leaders yet."""


def _error_of(response: CreateTopicsResponse | Any) -> int:
    """Return the error of a whole response: a broker that is not the controller reports that for each topic."""
    return response.topics[0].error_code if response.topics else ErrorCode.NONE
