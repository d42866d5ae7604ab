"""Reading in ways that cost: old versions that need conversion, many that do not read, sessions, searches by time."""

from __future__ import annotations

from compat.hostile.attack import Target, attack, fetch_values
from compat.hostile.attacks.pipelining import in_one_send, never_read
from compat.hostile.batches import GZIP, NOW_MS, bomb, many_small, one_record
from compat.hostile.messages import frame

MB = 1_000_000


def _filled_topic(target: Target, topic: str, megabytes: int) -> None:
    target.create_topics([topic])
    for _ in range(megabytes):
        target.produce(topic, one_record(target.rng.randbytes(MB - 10_000)))


def _not_reading(target: Target, version: int, connections: int) -> None:
    topic = f"hostile-fetch-v{version}"
    _filled_topic(target, topic, target.sized(60, 20))
    target.begin()
    whole = frame("Fetch", version, fetch_values(topic, [0], 60 * MB))
    never_read(target, whole, connections)
    target.delete_topics([topic])


@attack(
    "old-fetch-v0-unread",
    "60 connections that fetch 60 MB by Fetch v0 and do not read",
    "bounded memory",
    needs=(("Fetch", 0),),
)
def old_fetch_v0(target: Target) -> None:
    _not_reading(target, 0, 60)


@attack(
    "old-fetch-v3-unread",
    "60 connections that fetch 60 MB by Fetch v3 and do not read",
    "bounded memory",
    needs=(("Fetch", 3),),
)
def old_fetch_v3(target: Target) -> None:
    _not_reading(target, 3, 60)


@attack("fetch-v11-unread", "60 connections that fetch 60 MB by Fetch v11 and do not read", "bounded memory")
def fetch_v11(target: Target) -> None:
    _not_reading(target, 11, 60)


@attack(
    "old-fetch-bomb",
    "a gzip batch of 60 MB and one of 200,000 records, fetched by v0 and v2",
    "an answer",
    needs=(("Fetch", 2),),
)
def old_fetch_bomb(target: Target) -> None:
    topic = "hostile-fetch-bomb"
    target.create_topics([topic])
    target.produce(topic, bomb(2, GZIP, target.sized(60 * MB, 20 * MB)))
    target.produce(topic, many_small(2, GZIP, target.sized(200_000, 50_000)))
    target.begin()
    for version in (0, 2):
        values = fetch_values(topic, [0], 60 * MB)
        for offset in (0, 1):
            values["Topics"][0]["Partitions"][0]["FetchOffset"] = offset
            with target.connect() as peer:
                peer.send(frame("Fetch", version, values))
                peer.answer()
    target.delete_topics([topic])


@attack(
    "list-offsets-by-time",
    "lookups in 20 MB of small batches whose timestamps fall",
    "an answer each; others are served",
)
def list_offsets_by_time(target: Target) -> None:
    topic = "hostile-by-time"
    target.create_topics([topic])
    with target.connect() as peer:
        for n in range(target.sized(2_000, 500)):
            peer.send(_produce(topic, one_record(bytes(5_000), timestamp_ms=NOW_MS - n)))
            peer.answer()
    target.begin()
    while target.goes_on:
        partition = {"PartitionIndex": 0, "Timestamp": NOW_MS - target.rng.randrange(2_000)}
        in_one_send(
            target,
            "ListOffsets",
            1,
            {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [partition]}]},
            5,
        )
    target.delete_topics([topic])


def _produce(topic: str, data: bytes) -> bytes:
    from compat.hostile.attack import produce_values

    return frame("Produce", 7, produce_values(topic, [(0, data)]))


@attack(
    "fetch-sessions",
    "a new fetch session with each request, over 500 partitions",
    "old sessions make room",
)
def fetch_sessions(target: Target) -> None:
    topic = "hostile-sessions"
    target.create_topics([topic], 500)
    values = {**fetch_values(topic, range(500), 100), "SessionId": 0, "SessionEpoch": 0, "MinBytes": 0}
    target.begin()
    peer = target.connect()
    while target.goes_on:
        answer = peer.ask("Fetch", 11, values)
        target.expect(answer["ErrorCode"] == 0, f"answered with error {answer['ErrorCode']}")
    target.delete_topics([topic])


@attack("waiting-fetches", "1,000 fetches that wait for data in a topic that gets some", "all are answered")
def waiting_fetches(target: Target) -> None:
    topic = "hostile-waiting"
    target.create_topics([topic])
    target.begin()
    whole = frame("Fetch", 11, fetch_values(topic, [0], 1_000, wait_ms=20_000))
    peers = target.connect_many(target.sized(1_000, 300))
    for peer in peers:
        peer.send(whole)
    target.produce(topic, one_record(b"x"))
    for peer in peers:
        peer.answer()
    target.delete_topics([topic])
