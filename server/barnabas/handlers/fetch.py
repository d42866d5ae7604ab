"""Fetch v0-v18. Waits up to max_wait_ms for min_bytes; never decodes what it sends.

v3 adds max_bytes over all partitions, and from then on the first batch is sent whole even when it is larger than
every limit; v4 isolation levels and record batches (older versions get converted message sets); v5 log start
offsets; v7 sessions (KIP-227); v9 and v12 leader epoch checks (KIP-320, KIP-595); v10 zstd; v13 topic ids;
v15 moves the replica id into a tagged field; v16 says who leads, where the client believes in another one (KIP-951).
A broker that follows the partition tells its position with each fetch, and reads up to the log end. Consumers read below
the high watermark, from v11 on also from followers (KIP-392).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.endpoints import advertised_nodes
from barnabas.handlers.fetch_reading import Reader, Served, answer_error
from barnabas.requests.fetch_sessions import EPOCH_FINAL, EPOCH_INITIAL, NO_SESSION, Session, SessionPartition
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.failures import LogDirFailures
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext
    from barnabas.requests.fetch_sessions import FetchSessions
    from barnabas.requests.piecework import Piecework

TOPIC_IDS_SINCE = 13
SESSIONS_SINCE = 7
PARTITIONS_PER_STEP = 250


async def handle(
    context: RequestContext,
    request: FetchRequest,
    *,
    metadata: MetadataStore,
    replicas: Replicas,
    config: BrokerConfig,
    budget: LoopBudget,
    piecework: Piecework,
    fetch_sessions: FetchSessions,
    failures: LogDirFailures,
) -> FetchResponse:
    """Read what is there; when it is too little, wait once for more."""
    named, session, incremental = await _resolve_session(
        context, request, budget=budget, fetch_sessions=fetch_sessions
    )
    reader = Reader(
        context,
        request,
        named,
        session=session if incremental else None,
        metadata=metadata,
        replicas=replicas,
        config=config,
        budget=budget,
        failures=failures,
    )
    quotas = context.quotas
    if quotas is not None and reader.is_follower:
        quotas.exempt_from_fetch()
        quotas = None
    try:
        done = await reader.read(is_first=True)
        if (
            done.size < request.min_bytes
            and not done.must_answer
            and reader.wants_anything
            and request.max_wait_ms > 0
        ):
            done = await reader.wait_and_read(done)
    finally:
        reader.end()
    if quotas is not None and quotas.empties_fetch(done.response_bytes):
        # A new session is not begun, and one that goes on does not learn what was not sent: as in Kafka.
        if session is not None and not incremental:
            fetch_sessions.close(session.id)
        return FetchResponse(session_id=session.id if session is not None and incremental else NO_SESSION)
    if done.unconverted:
        from barnabas.handlers.fetch_conversion import convert

        for data, error in await convert(context, done.unconverted, piecework=piecework):
            answer_error(data, error)
    return await _respond(context, session, incremental, done.served, budget=budget, metadata=metadata)


# --- sessions ---------------------------------------------------------------------------------------------------


async def _resolve_session(
    context: RequestContext, request: FetchRequest, *, budget: LoopBudget, fetch_sessions: FetchSessions
) -> tuple[list[SessionPartition], Session | None, bool]:
    """What to serve: the named partitions, the session if there is one, and whether the answer is incremental.

    The session of an incremental request has taken what it names.
    """
    by_id = context.api_version >= TOPIC_IDS_SINCE
    checkpoint = budget.checkpoint
    named: list[SessionPartition] = []
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            named.append(
                SessionPartition(
                    key,
                    partition.partition,
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    partition.current_leader_epoch,
                    partition.last_fetched_epoch,
                    partition.log_start_offset,
                )
            )
            if not len(named) % PARTITIONS_PER_STEP:
                await checkpoint()
    if context.api_version < SESSIONS_SINCE:
        return named, None, False
    sessions = fetch_sessions
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        if request.session_epoch == EPOCH_FINAL:
            return named, None, False
        return named, sessions.create(named, uses_topic_ids=by_id, now_ms=context.now_ms), False
    session = sessions.resume(
        request.session_id, request.session_epoch, uses_topic_ids=by_id, now_ms=context.now_ms
    )
    forgotten = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    session.update(named, forgotten)
    return named, session, True


# --- answering --------------------------------------------------------------------------------------------------


async def _respond(
    context: RequestContext,
    session: Session | None,
    incremental: bool,
    served: list[Served],
    *,
    budget: LoopBudget,
    metadata: MetadataStore,
) -> FetchResponse:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    topic: FetchResponse.FetchableTopicResponse | None = None
    last_key: str | bytes | None = None
    with_records = []
    leaders: set[int] = set()
    checkpoint = budget.checkpoint
    for count, (want, data) in enumerate(served, start=1):
        if not count % PARTITIONS_PER_STEP:
            await checkpoint()
        if session is not None:
            has_records = bool(data.records)
            is_news = want.tell(
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset,
                is_error=data.error_code != 0,
            )
            if incremental and not (is_news or has_records or data.diverging_epoch.epoch >= 0):
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
            response.responses.append(topic)
        topic.partitions.append(data)
        if data.error_code:
            leaders.add(data.current_leader.leader_id)
    if session is not None and with_records:
        session.rotate(with_records)
    if leaders:
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in advertised_nodes(metadata.image, context.connection, leaders)
        ]
    return response
