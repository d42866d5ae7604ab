"""Many requests in one send; their answers are read late or never."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from compat.hostile.attack import PeerClosed, Target, attack, decoded, fetch_values, produce_values
from compat.hostile.batches import NOW_MS, batch, one_record, record
from compat.hostile.messages import frame
from compat.kit.wire import Values

MB = 1_000_000


def in_one_send(target: Target, api: str, version: int, values: Values, count: int) -> None:
    """Send `count` requests at once, and read all answers; they come in order."""
    whole = b"".join(frame(api, version, values, correlation_id=n) for n in range(count))
    peer = target.connect()
    peer.send(whole)
    for n in range(count):
        got = struct.unpack_from(">i", peer.answer())[0]
        target.expect(got == n, f"answer {n} has the correlation id {got}")


def never_read(target: Target, whole: bytes, connections: int) -> None:
    """Send a frame again and again on some connections, as far as they are read, and read no answer."""
    peers = target.connect_many(connections, receive_buffer=4096)
    begun = dict.fromkeys(peers, 0)  # how much of the present frame has been sent
    while target.goes_on and begun:
        for peer in list(begun):
            try:
                begun[peer] = (begun[peer] + peer.send_some(whole[begun[peer] :])) % len(whole)
            except PeerClosed:
                del begun[peer]
        time.sleep(0.001)


@attack(
    "pipelined-list-offsets",
    "200 ListOffsets by timestamp in one send, over 2,000 batches whose timestamps fall",
    "200 answers in order; others are served in between",
)
def list_offsets(target: Target) -> None:
    topic = "hostile-list-offsets"
    target.create_topics([topic], segment_index_bytes="1000")
    count = target.sized(2_000, 400)
    with target.connect() as peer:
        for n in range(count):
            data = one_record(bytes(50), timestamp_ms=NOW_MS - n)
            peer.send(frame("Produce", 7, produce_values(topic, [(0, data)])))
        for _ in range(count):
            peer.answer()
    target.begin()
    partition = {"PartitionIndex": 0, "Timestamp": NOW_MS}
    values = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [partition] * 1}]}
    in_one_send(target, "ListOffsets", 1, values, target.sized(200, 50))
    target.delete_topics([topic])


@attack(
    "pipelined-metadata",
    "30 Metadata of all topics in one send, 2,000 topics",
    "30 answers in order; others are served in between",
    leaves_state=True,
)
def metadata(target: Target) -> None:
    target.create_topics([f"hostile-metadata-{n}" for n in range(target.sized(2_000, 300))])
    target.begin()
    in_one_send(target, "Metadata", 4, {"Topics": None}, 30)


@attack(
    "pipelined-produce",
    "produce requests of 20 KB on 20 connections, as many as are read",
    "back-pressure",
)
def produce(target: Target) -> None:
    topic = "hostile-produce"
    target.create_topics([topic], retention_bytes="1000000")
    target.begin()
    whole = frame("Produce", 7, produce_values(topic, [(0, one_record(target.rng.randbytes(20_000)))]))
    never_read(target, whole, 20)
    target.delete_topics([topic])


@attack(
    "bulk-produce",
    "produce requests of 1 MB, a thousand records of 1 KB each, on one connection, four of them unanswered at any time",
    "an answer to each, without an error; others are served in between",
    leaves_state=True,
)
def bulk_produce(target: Target) -> None:
    topic, in_flight = "hostile-bulk", 4
    target.create_topics([topic])
    data = batch(b"".join(record(bytes(1_000), n) for n in range(980)), 980)
    whole = frame("Produce", 7, produce_values(topic, [(0, data)]))
    target.begin()
    with target.connect() as peer:
        for _ in range(in_flight):
            peer.send(whole)
        remaining = in_flight
        while remaining:
            answer = decoded("Produce", 7, peer.answer())
            code = answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]
            target.expect(code == 0, f"1 MB was answered with error {code}")
            if target.goes_on:
                peer.send(whole)
            else:
                remaining -= 1
    target.delete_topics([topic])


@attack(
    "pipelined-small-produce",
    "produce requests of 100 B, 2,000 in one send, on 4 connections",
    "all are answered",
)
def small_produce(target: Target) -> None:
    topic = "hostile-small-produce"
    target.create_topics([topic])
    whole = frame("Produce", 7, produce_values(topic, [(0, one_record(bytes(100)))]))
    count = target.sized(2_000, 500)
    target.begin()
    peers = target.connect_many(4)
    for peer in peers:
        peer.send(whole * count)
    for peer in peers:
        for _ in range(count):
            code = struct.unpack_from(">h", peer.answer(), 4 + 4 + 2 + len(topic) + 4 + 4)[0]
            target.expect(code == 0, f"a record was refused with error {code}")
    target.delete_topics([topic])


@attack(
    "pipelined-fetch",
    "fetches of 1 MB on 60 connections that read nothing",
    "answers that nobody reads take little memory",
)
def fetch(target: Target) -> None:
    topic = "hostile-fetch"
    target.create_topics([topic])
    for _ in range(10):
        target.produce(topic, batch(record(target.rng.randbytes(900_000)), 1))
    target.begin()
    never_read(target, frame("Fetch", 11, fetch_values(topic, [0], MB)) * 20, 60)
    target.delete_topics([topic])


@attack("pipelined-hello", "ApiVersions on 50 connections that read nothing", "back-pressure")
def hello(target: Target) -> None:
    target.begin()
    never_read(
        target, frame("ApiVersions", 3, {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"}) * 50, 50
    )


@attack(
    "pipelined-mixed",
    "Metadata, ListGroups, DescribeConfigs, DescribeLogDirs in one send of 400",
    "all are answered; others are served in between",
)
def mixed(target: Target) -> None:
    target.begin()
    asked: Sequence[tuple[str, int, Values]] = (
        ("Metadata", 4, {"Topics": None}),
        ("ListGroups", 2, {}),
        (
            "DescribeConfigs",
            2,
            {"Resources": [{"ResourceType": 4, "ResourceName": "1", "ConfigurationKeys": None}]},
        ),
        ("DescribeLogDirs", 1, {"Topics": None}),
    )
    peer = target.connect()
    peer.send(b"".join(frame(*request) for request in asked) * target.sized(100, 25))
    for _ in range(len(asked) * target.sized(100, 25)):
        peer.answer()
