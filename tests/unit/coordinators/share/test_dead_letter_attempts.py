"""Attempts to write to a dead letter queue at a leader that refuses or cannot be reached (KIP-1191)."""

from __future__ import annotations

import logging

import pytest
import trio

from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.config.loading import BrokerConfig
from barnabas.coordinators.share.dead_letter_queue import ATTEMPTS, DeadLetterQueues
from barnabas.coordinators.share.dead_letters import REJECTED, DeadLetters, Origin
from barnabas.coordinators.share.settings import ShareSettings
from barnabas.environment.real import OsEntropy
from barnabas.errors import RequestError
from barnabas.records.any_magic import iter_any_records
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from tests.support.peers import ME, cluster, topic

ORIGIN = Origin("t", 0, "s")
GROUP = ShareSettings(dead_letter_topic="dlq.s")


class Leader:
    """Stands for the leader of the queue's partition, and answers Produce with these errors first."""

    def __init__(self, *errors: ErrorCode) -> None:
        self._errors = list(errors)
        self.attempts: list[float] = []
        self.offsets: list[str] = []

    async def append(self, topic: str, partition: int, batch: bytearray) -> None:
        self.attempts.append(trio.current_time())
        if self._errors:
            raise RequestError(self._errors.pop(0), "not now")
        for record in iter_any_records(batch):
            headers = dict(record.headers)
            self.offsets.append((headers["__dlq.errors.offset"] or b"").decode())


async def written(leader: Leader, first: int = 0, last: int = 0) -> bool:
    metadata = cluster(topic("dlq.s", ME), topic("t", ME))
    await metadata.apply([ConfigChanged(2, "dlq.s", (("errors.deadletterqueue.group.enable", "true"),))])
    queues = DeadLetterQueues(
        config=BrokerConfig({"kafka.version": "4.4"}),
        metadata=metadata,
        creation=None,  # type: ignore[arg-type]  # the topic is there
        writer=leader,
        entropy=OsEntropy(),
        budget=LoopBudget(),
        now_ms=lambda: 0,
        are_on=lambda: True,
        log_limit=LogLimit(),
    )
    return await queues.write(ORIGIN, None, DeadLetters(first, last, 5, REJECTED), lambda: GROUP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)  # fmt: skip
async def test_transient_error_of_a_leader_is_retried_with_backoff(code, autojump_clock) -> None:
    leader = Leader(*[code] * (ATTEMPTS - 1))
    assert await written(leader)
    pauses = [later - earlier for earlier, later in zip(leader.attempts, leader.attempts[1:], strict=False)]
    factors = [round(pause / 2**number, 3) for number, pause in enumerate(pauses)]
    assert len(factors) == ATTEMPTS - 1
    assert min(factors) >= 0.8
    assert max(factors) <= 1.2
    assert leader.offsets == ["0"]


async def test_leader_that_never_answers_is_given_up(autojump_clock, caplog) -> None:
    leader = Leader(*[ErrorCode.NETWORK_EXCEPTION] * 100)
    with caplog.at_level(logging.WARNING):
        assert not await written(leader)
    assert len(leader.attempts) == ATTEMPTS
    assert "offsets 0 to 0 of t-0, 5 times delivered, are not in the dead letter queue" in caplog.text


async def test_lasting_error_of_a_leader_is_not_retried(autojump_clock) -> None:
    leader = Leader(ErrorCode.RECORD_LIST_TOO_LARGE)
    assert not await written(leader)
    assert len(leader.attempts) == 1


async def test_many_offsets_are_written_once_each_in_order(autojump_clock) -> None:
    leader = Leader()
    assert await written(leader, first=7, last=1_206)
    assert leader.offsets == [str(offset) for offset in range(7, 1_207)]
    assert len(leader.attempts) == 3
