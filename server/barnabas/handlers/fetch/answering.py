"""One fetch from its request to its response: its session, the passes over its partitions, the wait, the response.

The rule: a fetch of few partitions that hold enough bytes is answered in one step; any other continues from where that step
stopped, and repeats nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.cluster.metadata.endpoints import advertised_nodes
from barnabas.coordinators.statemachine.decision import slices
from barnabas.errors import RequestError
from barnabas.handlers.fetch.passes import FetchPass, Served
from barnabas.handlers.fetch.reading import Reader, answer_error
from barnabas.serving.fetch_sessions import EPOCH_FINAL, EPOCH_INITIAL, NO_SESSION, Session, SessionPartition
from barnabas.wire.extent import has_more_entries
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.handlers.fetch.services import FetchServices
    from barnabas.serving.context import RequestContext

TOPIC_IDS_SINCE: Final = 13
SESSIONS_SINCE: Final = 7
PARTITIONS_PER_STEP: Final = 250
ISOLATION_LEVELS: Final = (0, 1)


def last_of_each(named: list[SessionPartition]) -> list[SessionPartition]:
    """Return each partition once, as the request names it last."""
    if len(named) < 2:
        return named
    last = {(partition.topic, partition.index): partition for partition in named}
    return named if len(last) == len(named) else [*last.values()]


class FetchAnswer:
    """One fetch. Lifecycle: `answer_nowait`, and if that is None, `rest`."""

    __slots__ = (
        "_by_id",
        "_context",
        "_is_incremental",
        "_leaders",
        "_reader",
        "_request",
        "_services",
        "_session",
    )

    def __init__(self, services: FetchServices, context: RequestContext, request: FetchRequest) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._by_id = context.api_version >= TOPIC_IDS_SINCE
        self._session: Session | None = None
        self._is_incremental = False
        self._reader: Reader | None = None
        self._leaders: set[int] = set()  # where errors say that the leader is

    def answer_nowait(self) -> FetchResponse | None:
        """Answer if that takes one step and no waiting; else return None. Raises RequestError."""
        if self._context.quotas is not None or has_more_entries(self._request, PARTITIONS_PER_STEP):
            return None
        reader = self._begin(last_of_each([*self._named(self._request.topics)]))
        try:
            done = reader.result
            if not reader.read_some() or self._must_wait(reader) or done.unconverted:
                return None
            if done.remote and not self._read_remote_nowait(done):
                return None
        except BaseException:
            reader.end()
            raise
        reader.end()
        response = FetchResponse(session_id=self._session_id)
        self._tell(response, reader.result.served)
        return self._complete(response)

    async def rest(self) -> FetchResponse:
        """Return the response, continuing where `answer_nowait` stopped. Raises RequestError."""
        reader = self._reader
        if reader is None:
            reader = self._begin(await self._named_in_steps())
        quotas = self._context.quotas
        if quotas is not None and reader.is_follower:
            quotas.exempt_from_fetch()
            quotas = None
        try:
            done = await reader.read_rest()
            if self._must_wait(reader):
                done = await reader.wait_and_read()
            if done.remote:
                await self._read_remote(done)
        finally:
            reader.end()
        session = self._session
        if quotas is not None and quotas.empties_fetch(done.response_bytes):
            # a new session is not begun, and a continued one does not record unsent partitions: as in Kafka
            if session is not None and not self._is_incremental:
                self._services.fetch_sessions.close(session.id)
            return FetchResponse(session_id=self._session_id if self._is_incremental else NO_SESSION)
        if done.unconverted:
            from barnabas.handlers.fetch.conversion import convert

            for data, error in await convert(
                self._context, done.unconverted, step_runner=self._services.step_runner
            ):
                answer_error(data, error)
        response = FetchResponse(session_id=self._session_id)
        for start in range(0, len(done.served), PARTITIONS_PER_STEP):
            if start:
                await self._services.budget.checkpoint()
            self._tell(response, done.served[start : start + PARTITIONS_PER_STEP])
        return self._complete(response)

    def _read_remote_nowait(self, done: FetchPass) -> bool:
        """Add the records of remote segments to the response if they were read ahead; return whether they were."""
        # not needed by a broker without tiered storage
        from barnabas.handlers.fetch.remote import read_remote_nowait

        assert self._services.tiered is not None
        return read_remote_nowait(self._context, self._services.tiered.reads, done)

    async def _read_remote(self, done: FetchPass) -> None:
        """Add the records of remote segments that arrive in time to the response. Waits for memory if necessary."""
        # not needed by a broker without tiered storage
        from barnabas.handlers.fetch.remote import read_remote

        assert self._services.tiered is not None
        wait_ms = self._request.max_wait_ms if done.size < self._request.min_bytes else 0
        await read_remote(self._context, self._services.tiered.reads, done, wait_ms)

    def _must_wait(self, reader: Reader) -> bool:
        """Return whether too few bytes were read to answer already."""
        done, request = reader.result, self._request
        return (
            done.size < request.min_bytes
            and not done.must_answer
            and request.max_wait_ms > 0
            and reader.wants_anything
        )

    # --- sessions -----------------------------------------------------------------------------------------------

    def _named(self, topics: Sequence[FetchRequest.FetchTopic]) -> Iterator[SessionPartition]:
        """Yield the partitions that the request names in these topics."""
        for topic in topics:
            key = topic.topic_id if self._by_id else topic.topic
            for partition in topic.partitions:
                yield SessionPartition(
                    key,
                    partition.partition,
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    partition.current_leader_epoch,
                    partition.last_fetched_epoch,
                    partition.log_start_offset,
                )

    async def _named_in_steps(self) -> list[SessionPartition]:
        last: dict[tuple[str | bytes, int], SessionPartition] = {}
        for topics in slices(self._request.topics, PARTITIONS_PER_STEP):
            every = self._named(topics)
            while some := [*islice(every, PARTITIONS_PER_STEP)]:
                last.update(((partition.topic, partition.index), partition) for partition in some)
                await self._services.budget.checkpoint()
            await self._services.budget.checkpoint()
        return [*last.values()]

    @property
    def _session_id(self) -> int:
        return self._session.id if self._session is not None else NO_SESSION

    def _begin(self, named: list[SessionPartition]) -> Reader:
        """Find the session, and begin to read the named partitions, or those of the session.

        An incremental request first updates the session. Raises RequestError.
        """
        if self._request.isolation_level not in ISOLATION_LEVELS:
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"isolation level {self._request.isolation_level} is not known",
            )
        self._find_session(named)
        reader = self._reader = Reader(
            self._services,
            self._context,
            self._request,
            named,
            session=self._session if self._is_incremental else None,
        )
        return reader

    def _find_session(self, named: list[SessionPartition]) -> None:
        context, request, sessions, by_id = (
            self._context,
            self._request,
            self._services.fetch_sessions,
            self._by_id,
        )
        if context.api_version < SESSIONS_SINCE:
            return
        if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            if request.session_epoch != EPOCH_FINAL:
                self._session = sessions.create(named, uses_topic_ids=by_id, now_ms=context.now_ms)
            return
        session = sessions.resume(
            request.session_id, request.session_epoch, uses_topic_ids=by_id, now_ms=context.now_ms
        )
        forgotten = [
            (topic.topic_id if by_id else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        session.update(named, forgotten)
        self._session, self._is_incremental = session, True

    # --- answering ----------------------------------------------------------------------------------------------

    def _tell(self, response: FetchResponse, served: list[Served]) -> None:
        """Add the data of partitions to the response; in a session, unchanged partitions are excluded."""
        session, by_id = self._session, self._by_id
        topics = response.responses
        topic = topics[-1] if topics else None
        last_key: str | bytes | None = None
        if topic is not None:
            last_key = topic.topic_id if by_id else topic.topic
        with_records = []
        for want, data in served:
            if session is not None:
                has_records = bool(data.records)
                # a follower that is told to truncate ignores the rest of the answer
                is_news = want.tell(
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                    is_error=data.error_code != 0 or (not has_records and data.diverging_epoch.epoch >= 0),
                )
                if self._is_incremental and not (is_news or has_records):
                    continue
                if has_records:
                    with_records.append((want.topic, want.index))
            if topic is None or want.topic != last_key:
                topic = FetchResponse.FetchableTopicResponse()
                last_key = want.topic
                if by_id:
                    topic.topic_id = want.topic  # type: ignore[assignment]
                else:
                    topic.topic = want.topic  # type: ignore[assignment]
                topics.append(topic)
            topic.partitions.append(data)
            if data.error_code:
                self._leaders.add(data.current_leader.leader_id)
        if session is not None and with_records:
            session.rotate(with_records)

    def _complete(self, response: FetchResponse) -> FetchResponse:
        """Add the endpoints of the leaders that errors name (KIP-951)."""
        if self._leaders:
            nodes = advertised_nodes(self._services.metadata.image, self._context.connection, self._leaders)
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in nodes
            ]
        return response
