"""Large records are written in a thread where other connections have requests too, and at once where none has."""

from __future__ import annotations

import socket
import struct

import pytest
import trio

from barnabas.log.background_write import BACKGROUND_BYTES, BackgroundWrite
from barnabas.serving.pacing import OTHERS_SECONDS
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.support.connected import Serving, connected
from tests.support.logs import batch, read_all

LARGE = bytes(BACKGROUND_BYTES)


@pytest.fixture
async def ask(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        await ask_for_topic(asked, partitions=2)
        asked.connection.is_among_others = True
        yield asked


@pytest.fixture
def written(monkeypatch):
    """The sizes of what was written in a thread."""
    sizes = []
    write = BackgroundWrite.run

    def run(self):
        sizes.append(len(self._records))
        write(self)

    monkeypatch.setattr(BackgroundWrite, "run", run)
    return sizes


def produce(*records, acks=1):
    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=data) for index, data in enumerate(records)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


async def produced(ask, *records, acks=1):
    answer = await ask(produce(*records, acks=acks), 8)
    return [(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses]


def log_of(ask, index=0):
    return ask.services.replicas.leader("t", index).log


def sizes(ask, index=0):
    return [len(record.value) for record in read_all(log_of(ask, index))]


@pytest.mark.parametrize("acks", [1, -1])
async def test_large_records_are_written_in_a_thread(ask, written, acks):
    assert await produced(ask, batch(LARGE), batch(b"small"), acks=acks) == [(0, 0), (0, 0)]
    assert await produced(ask, batch(b"small"), batch(LARGE), acks=acks) == [(0, 1), (0, 1)]
    assert len(written) == 2
    assert [sizes(ask, index) for index in (0, 1)] == [[len(LARGE), 5], [5, len(LARGE)]]


async def test_alone_nothing_is(ask, written):
    ask.connection.is_among_others = False
    assert await produced(ask, batch(LARGE)) == [(0, 0)]
    assert written == []
    assert sizes(ask) == [len(LARGE)]


async def test_requests_to_a_partition_are_appended_in_order(ask, written):
    async with trio.open_nursery() as nursery:
        for number in range(8):
            records = batch(LARGE) if number % 3 else batch(b"small")
            nursery.start_soon(produced, ask, records)
    assert len(written) == 5
    assert sorted(sizes(ask)) == [5] * 3 + [len(LARGE)] * 5
    log = log_of(ask)
    assert log.active.size == log.active.file.size()


async def test_what_a_producer_repeats_is_not_written(ask, written):
    def records(sequence):
        return batch(LARGE, producer_id=7, producer_epoch=0, base_sequence=sequence)

    assert await produced(ask, records(0)) == [(0, 0)]
    assert await produced(ask, records(0)) == [(0, 0)]
    assert await produced(ask, records(5)) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert len(written) == 1
    assert sizes(ask) == [len(LARGE)]


async def test_former_leader_takes_back_what_was_written(ask, written, monkeypatch):
    replica = ask.services.replicas.leader("t", 0)
    run = BackgroundWrite.run

    def run_and_close(self):
        run(self)
        replica.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(BackgroundWrite, "run", run_and_close)
    assert await produced(ask, batch(LARGE)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert len(written) == 1
    assert replica.log.active.file.size() == replica.log.active.size == 0


async def test_whoever_is_cancelled_meanwhile_leaves_nothing_half_done(ask, written, monkeypatch):
    run = BackgroundWrite.run
    with trio.CancelScope() as scope:

        def run_and_cancel(self):
            run(self)
            trio.from_thread.run_sync(scope.cancel)

        monkeypatch.setattr(BackgroundWrite, "run", run_and_cancel)
        await produced(ask, batch(LARGE))
    assert scope.cancel_called
    assert len(written) == 1
    log = log_of(ask)
    assert log.active.file.size() == log.active.size
    assert sizes(ask) in ([], [len(LARGE)])
    assert await produced(ask, batch(b"later")) == [(0, log.log_end_offset - 1)]


async def test_connection_is_among_others_while_they_have_requests(tmp_path, monkeypatch):
    now = [1_000.0]
    small = struct.pack(">ihhih", 13, 18, 0, 7, 3) + b"raw"
    large = struct.pack(">hhih", 18, 0, 7, 3) + b"raw" + bytes(100_000)
    large = struct.pack(">i", len(large)) + large

    def ask_and_read(client, frame):
        client.sendall(frame)
        (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        client.recv(size, socket.MSG_WAITALL)

    async def sent(client, frame):
        await trio.to_thread.run_sync(ask_and_read, client, frame)

    async with broker_to_ask(tmp_path) as asked:
        serving = Serving.of(asked.broker.connections.parts)
        monkeypatch.setattr(serving.parts, "now_s", lambda: now[0])
        async with connected(serving, 1) as (connection, client), connected(serving, 2) as (_, other):
            await sent(client, small)
            now[0] += OTHERS_SECONDS
            await sent(client, large)
            assert not connection.info.is_among_others
            await sent(other, small)
            await sent(client, large)
            assert connection.info.is_among_others
            now[0] += OTHERS_SECONDS
            await sent(client, large)
            assert not connection.info.is_among_others
