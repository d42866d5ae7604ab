"""A producer with brokers that fail in any way: what it says is acknowledged is in the log once, in the order of `send`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client import ClientError, Delivery, Producer, ProducerSettings, open_producer
from barnabas.wire.generated.errors import ErrorCode
from tests.support.appending_broker import CLOSES, FORGETS_ANSWER, SILENT, AppendingCluster
from tests.support.scripted_broker import BOOTSTRAP

TEMPORARY = (
    CLOSES,
    FORGETS_ANSWER,
    SILENT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
FOR_GOOD = (ErrorCode.INVALID_RECORD, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE)
FAULTS = st.lists(st.sampled_from((0, 0, 0, *TEMPORARY, *FOR_GOOD)), max_size=40)
STEPS = st.lists(
    st.one_of(
        st.integers(0, 1),  # send to a partition
        st.sampled_from(("flush", "pause", "move the leader", "away for long")),
    ),
    min_size=1,
    max_size=40,
)


class Run:
    """One history of a producer."""

    def __init__(self, faults: list[Any]) -> None:
        self.cluster = AppendingCluster()
        self.faults = list(reversed(faults))
        self.is_away = self.is_over = False
        self.cluster.fault = self.fault
        self.sent: list[list[tuple[bytes, Delivery]]] = [[], []]

    def fault(self, partition: int) -> Any:
        if self.is_away:
            return CLOSES
        return self.faults.pop() if self.faults else 0

    async def run(self, steps: list[Any], chosen: ProducerSettings) -> None:
        with suppress(ClientError):  # failures of records, which nobody has asked for yet
            async with (
                self.cluster.serving(),
                open_producer([BOOTSTRAP], chosen, dial=self.cluster.dial) as producer,
            ):
                for number, step in enumerate(steps):
                    await self.take(producer, chosen, number, step)
                self.faults.clear()
                for partition in (0, 1):  # the producer has recovered from all of it
                    place = await producer.send_and_wait("t", b"last", partition=partition)
                    assert place.offset == len(self.cluster.logs[partition].records) - 1
                self.is_over = True

    async def take(self, producer: Producer, chosen: ProducerSettings, number: int, step: Any) -> None:
        if isinstance(step, int):
            value = b"%d" % number
            self.sent[step].append((value, await producer.send("t", value, partition=step)))
        elif step == "move the leader":
            self.cluster.leaders[0] = 3 - self.cluster.leaders[0]
        elif step == "pause":
            await trio.sleep(0.3)
        elif step == "away for long":
            self.is_away = True
            await trio.sleep(chosen.delivery_timeout_ms / 1000 + 1)
            self.is_away = False
        else:
            with suppress(ClientError):
                await producer.flush()

    def judge(self) -> None:
        assert self.is_over, "a record failed although nothing was wrong any more"
        for sent, log in zip(self.sent, self.cluster.logs, strict=True):
            there = [value for value, _ in log.records]
            assert len(there) == len(set(there)), "a record is there twice"
            acknowledged = []
            for value, delivery in sent:
                assert delivery.is_done
                try:
                    place = delivery.result()
                except ClientError:
                    continue
                acknowledged.append(value)
                assert place.offset < 0 or there[place.offset] == value
            assert [value for value in there if value in set(acknowledged)] == acknowledged


@given(FAULTS, STEPS, st.sampled_from((1, 3, 5)), st.sampled_from((1, 200, 100_000)))
@settings(max_examples=60, deadline=None)
def test_what_is_acknowledged_is_there_once_and_in_order(
    faults: list[Any], steps: list[Any], in_flight: int, batch_bytes: int
) -> None:
    run = Run(faults)
    chosen = ProducerSettings(in_flight_max=in_flight, batch_bytes=batch_bytes, linger_ms=20)
    trio.run(run.run, steps, chosen, clock=trio.testing.MockClock(autojump_threshold=0))
    run.judge()
