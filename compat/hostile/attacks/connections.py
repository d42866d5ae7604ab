"""Connections that are many, slow, half-hearted or gone again."""

from __future__ import annotations

import struct
import time

from compat.hostile.attack import PeerClosed, Target, attack, fetch_values, produce_values
from compat.hostile.batches import one_record
from compat.hostile.messages import frame

MB = 1_000_000


@attack("5000-connections", "5,000 connections that say hello and then nothing", "all are answered")
def many_connections(target: Target) -> None:
    target.begin()
    hello = frame("ApiVersions", 0, {})
    peers = target.connect_many(target.sized(5_000, 2_000))
    for peer in peers:
        peer.send(hello)
    for peer in peers:
        peer.answer()
    target.wait()


@attack(
    "half-frames",
    "5,000 connections with 1 KB of a frame of 100 MB each",
    "memory stays in proportion to what came",
)
def half_frames(target: Target) -> None:
    target.begin()
    part = (
        struct.pack(">i", 100 * MB) + frame("Produce", 7, produce_values("t", [(0, bytes(1_100))]))[4:1_024]
    )
    for peer in target.connect_many(target.sized(5_000, 2_000)):
        peer.send(part)
    target.wait()


@attack(
    "half-frames-64k",
    "1,000 connections with 64 KB of a frame of 100 MB each",
    "memory stays in proportion to what came",
)
def larger_half_frames(target: Target) -> None:
    target.begin()
    part = struct.pack(">i", 100 * MB) + bytes(64 * 1024)
    part = part[:4] + frame("Produce", 7, {})[4:20] + part[20:]
    for peer in target.connect_many(target.sized(1_000, 500)):
        peer.send_some(part)
    target.wait()


@attack(
    "full-frames-unfinished",
    "40 connections with all but the last byte of a frame of 20 MB",
    "back-pressure on them alone",
)
def unfinished_frames(target: Target) -> None:
    count = target.sized(40, 20)
    data = frame("Produce", 7, produce_values("hostile-unfinished", [(0, bytes(20 * MB))]))[:-1]
    target.begin()
    unsent = dict.fromkeys(target.connect_many(count), 0)
    while unsent and target.goes_on:
        for peer in list(unsent):
            try:
                unsent[peer] += peer.send_some(data[unsent[peer] : unsent[peer] + (1 << 18)])
            except PeerClosed:
                unsent.pop(peer)
                continue
            if unsent[peer] >= len(data):
                unsent.pop(peer)
        time.sleep(0.001)
    target.wait()


@attack(
    "churn",
    "connections that are closed as soon as they are accepted, some in the middle of a frame",
    "nothing",
)
def churn(target: Target) -> None:
    target.begin()
    whole = frame("Metadata", 4, {"Topics": []})
    while target.goes_on:
        for size in (0, 2, 10, len(whole)):
            with target.connect() as peer:
                if size:
                    peer.send(whole[:size])


@attack("slow-writers", "500 connections that send one byte in 50 ms", "they wait alone")
def slow_writers(target: Target) -> None:
    target.begin()
    whole = frame("Metadata", 4, {"Topics": []})
    peers = target.connect_many(500)
    at = 0
    while target.goes_on:
        for peer in peers:
            peer.send_some(whole[at % len(whole) : at % len(whole) + 1])
        at += 1
        time.sleep(0.05)


@attack(
    "slow-readers",
    "100 connections that fetch 10 MB each and read 1 KB in 50 ms",
    "they wait alone; answers that nobody reads take little memory",
)
def slow_readers(target: Target) -> None:
    topic = "hostile-slow-readers"
    target.create_topics([topic])
    for _ in range(10):
        target.produce(topic, one_record(target.rng.randbytes(900_000)))
    target.begin()
    whole = frame("Fetch", 11, fetch_values(topic, [0], 10 * MB))
    peers = target.connect_many(100, receive_buffer=4096)
    for peer in peers:
        peer.send(whole)
    while target.goes_on:
        for peer in peers:
            peer.socket.settimeout(0.001)
            try:
                peer.socket.recv(1024)
            except OSError:
                continue
        time.sleep(0.05)
    target.delete_topics([topic])
