"""Frames that are wrong: mutated, cut short, of impossible sizes, of unknown APIs, with names that are too long."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from compat.hostile.attack import NoAnswer, PeerClosed, Target, attack
from compat.hostile.messages import arrays, filled, frame, mutated, plausible
from compat.kit.wire import API, message

DRAIN_S = 0.01
NEVER_MUTATED = frozenset({"SaslHandshake", "SaslAuthenticate"})
MAY_WAIT = ("Produce", "JoinGroup", "SyncGroup", "Fetch", "ShareFetch")
"""Requests with an answer that may wait for others, or never comes: acks=0."""
ANSWER_WITHIN_S = 20.0
CHANGES_BROKER = frozenset({"AlterConfigs", "IncrementalAlterConfigs", "UpdateFeatures"})
"""A lucky mutation of these changes settings of the broker that the quiet client depends on."""


def served(target: Target) -> Iterator[tuple[str, int]]:
    """Every API and version that the broker serves and the schemas know."""
    for path in sorted(API.glob("*Request.json")):
        name = path.stem.partition("_")[2].removesuffix("Request")
        definition = message(f"{name}Request")
        if definition.api_key not in target.versions:
            continue
        first, last = target.versions[definition.api_key]
        for version in range(max(first, definition.versions.first), min(last, definition.versions.last) + 1):
            yield name, version


@attack(
    "mutated-frames",
    "frames of every API and version with a few bytes changed",
    "an answer or a closed connection; no traceback",
    leaves_state=True,
)
def mutated_frames(target: Target) -> None:
    frames = [
        (api, frame(api, version, filled(api, version)))
        for api, version in served(target)
        if api not in NEVER_MUTATED | CHANGES_BROKER
    ]
    target.expect(len(frames) > 100, f"only {len(frames)} versions are served")
    target.begin()
    sent = 0
    while target.goes_on or sent < len(frames):
        _, whole = frames[sent % len(frames)]
        with target.connect() as peer:
            try:
                for _ in range(8):
                    peer.send(mutated(whole, target.rng))
            except PeerClosed:
                pass
            peer.drain(DRAIN_S)
        sent += 1


@attack("impossible-sizes", "sizes of a frame below 0, of 0 and of 2 GiB", "the connection is closed")
def impossible_sizes(target: Target) -> None:
    target.begin()
    while target.goes_on:
        for size in (-1, -(2**31), 0, 2**31 - 1, 104_857_601):
            with target.connect() as peer:
                peer.send(struct.pack(">i", size) + bytes(8))
                target.expect(peer.drain(5), f"a frame of {size} bytes does not close the connection")


@attack(
    "unknown-apis",
    "API keys and versions that nobody serves",
    "the connection is closed; the log is bounded",
)
def unknown_apis(target: Target) -> None:
    target.begin()
    keys = [key for key in (-1, 4, 5, 6, 7, 999, 32_767) if key not in target.versions]
    while target.goes_on:
        for key in keys:
            with target.connect() as peer:
                peer.send(struct.pack(">ihhih", 10, key, 0, 7, -1))
                target.expect(peer.drain(5), f"API key {key} does not close the connection")
        with target.connect() as peer:
            peer.send(struct.pack(">ihhih", 10, 3, 999, 7, -1))
            target.expect(peer.drain(5), "Metadata v999 does not close the connection")


@attack(
    "huge-client-ids",
    "client ids of 32,767 bytes, in good requests and in bad ones",
    "answered; the log is bounded",
)
def huge_client_ids(target: Target) -> None:
    target.begin()
    name = "x" * 32_767
    peer = target.connect()
    while target.goes_on:
        peer.send(frame("Metadata", 4, {"Topics": []}, client_id=name))
        peer.answer()
        with target.connect() as bad:
            bad.send(frame("Metadata", 4, {"Topics": None}, client_id=name)[:-3] + b"\x7f\xff\xff")
            bad.drain(0.05)


@attack(
    "correlation-ids",
    "pipelined requests whose ids repeat, fall and are negative",
    "answers in order with those ids",
)
def correlation_ids(target: Target) -> None:
    target.begin()
    peer = target.connect()
    while target.goes_on:
        ids = [7, 7, 3, -1, 2**31 - 1, -(2**31), 0] + [
            target.rng.randrange(-(2**31), 2**31) for _ in range(20)
        ]
        peer.send(b"".join(frame("ApiVersions", 0, {}, correlation_id=id_) for id_ in ids))
        got = [struct.unpack_from(">i", peer.answer())[0] for _ in ids]
        target.expect(got == ids, f"{ids} was answered as {got}")


@attack(
    "maximal-arrays",
    "requests of every API with one array of 20,000 elements each",
    "an answer or a closed connection",
    leaves_state=True,
    needs=(("CreateTopics", 4),),
)
def maximal_arrays(target: Target) -> None:
    count = target.sized(20_000, 4_000)
    newest = dict(served(target))  # the last version of each is kept
    frames = []
    for api, version in newest.items():
        if api in NEVER_MUTATED | {"CreateTopics", "CreatePartitions"}:
            continue
        for path in arrays(api, version):
            values = filled(api, version, plausible, wide=path, count=count)
            frames.append((f"{api} v{version} {'.'.join(path)}", frame(api, version, values)))
    target.begin()
    for label, whole in frames:
        with target.connect() as peer:
            peer.socket.settimeout(ANSWER_WITHIN_S)
            try:
                peer.send(whole)
                if not label.startswith(MAY_WAIT):
                    peer.answer()
            except PeerClosed:
                continue
            except NoAnswer:
                target.expect(False, f"{label} is neither answered nor refused")
