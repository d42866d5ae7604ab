"""Produce v0-v13. Appends each partition's records and answers when `acks` is satisfied.

acks=0: no response; an error closes the connection, so that the client looks up the leader again. acks=1: answered after
the append, and after the flush that `flush.messages` may ask for. acks=-1: answered when the high watermark has passed the
records. A partition that takes longer than the request's timeout is answered with REQUEST_TIMED_OUT. v0-v1 carry message
format v0, v2 carries v1 (both are stored as v2); v3 is the first with record batches; v7 the first with zstd; v8 adds
per-record errors; v10 the current leader in the error response; from v11 on TRANSACTION_ABORTABLE may be returned; v12 adds
partitions to the transaction implicitly (KIP-890); v13 names topics by id.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.endpoints import advertised_nodes
from barnabas.cluster.replicas.replica import ACKS_ALL
from barnabas.errors import RequestError
from barnabas.handlers.produce.appending import Appender
from barnabas.handlers.produce.services import ProduceServices
from barnabas.records.steps import run
from barnabas.serving.deferred import Deferred
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from barnabas.records.steps import Steps
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

CURRENT_LEADER_SINCE = 10
ANSWERS_PER_CHECKPOINT = 500


class Produce(ProduceServices):
    """Handler of Produce."""

    def handle(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | Deferred[ProduceResponse | None] | None:
        """Append and answer; None for acks=0."""
        appender = Appender(self, context, request)
        if appender.append_nowait() and not (appender.pending and request.acks):
            response = _answer(context, request, appender)
            if response is not None and appender.refusals.has_moved:
                run(self._name_leaders(context, response))
            return response
        return Deferred(partial(self._append_rest, context, request, appender))

    async def _append_rest(
        self, context: RequestContext, request: ProduceRequest, appender: Appender
    ) -> ProduceResponse | None:
        """Append the records that could not be appended immediately, and answer when they may be acknowledged."""
        try:
            await appender.admit()
        except RequestError:
            if request.acks == 0:
                context.close_after_response = True
                return None
            raise
        await appender.append_rest()
        if appender.pending and request.acks:
            await _wait(appender, request, self.budget)
        response = _answer(context, request, appender)
        if response is not None and appender.refusals.has_moved:
            await self.step_runner.run(self._name_leaders(context, response))
        return response

    def _name_leaders(self, context: RequestContext, response: ProduceResponse) -> Steps[None]:
        """Name the leaders of partitions that were refused since another broker leads them (KIP-951), by topic."""
        if context.api_version < CURRENT_LEADER_SINCE:
            return
        leaders: set[int] = set()
        for topic in response.responses:
            yield None
            for number, answer in enumerate(topic.partition_responses, 1):
                if not number % ANSWERS_PER_CHECKPOINT:
                    yield None
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader_id, leader_epoch = self.replicas.current_leader(topic.name, answer.index)
                    answer.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id, leader_epoch)
                    leaders.add(leader_id)
        for node in advertised_nodes(self.metadata.image, context.connection, leaders) if leaders else ():
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            )


def _answer(context: RequestContext, request: ProduceRequest, appender: Appender) -> ProduceResponse | None:
    """Return the answer to a request that is appended; None for acks=0."""
    if request.acks == 0:
        _end_without_response(context, appender.topics)
        return None
    return ProduceResponse(responses=appender.topics)


async def _wait(appender: Appender, request: ProduceRequest, budget: LoopBudget) -> None:
    """Wait until the records of each partition may be acknowledged; late partitions get REQUEST_TIMED_OUT."""
    deadline = trio.current_time() + max(request.timeout_ms, 0) / 1000
    for number, (partition, end_offset, response) in enumerate(appender.pending, 1):
        if not number % ANSWERS_PER_CHECKPOINT:
            await budget.checkpoint()
        with trio.move_on_at(deadline) as scope:
            try:
                if request.acks == ACKS_ALL:
                    await partition.wait_committed(end_offset)
                else:
                    await partition.wait_flushed(end_offset)
            except RequestError as error:
                response.error_code = error.code
                response.base_offset = -1
                appender.refusals.note(error)
        if scope.cancelled_caught:
            response.error_code = ErrorCode.REQUEST_TIMED_OUT


def _end_without_response(
    context: RequestContext, topics: list[ProduceResponse.TopicProduceResponse]
) -> None:
    for topic in topics:
        for response in topic.partition_responses:
            if response.error_code:
                context.close_after_response = True
                return
