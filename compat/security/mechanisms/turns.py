"""Requests before, during and after a login, in turn and out of turn; frames that are no requests."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from compat.kit.wire import Values
from compat.security.mechanisms.plain import RIGHT
from compat.security.mechanisms.scenarios import FRAMINGS, NAMES, NEWEST, RAW, Act, Scenario
from compat.security.mechanisms.talk import framed

SOFTWARE = {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}
REQUESTS: dict[str, tuple[str, int, Values]] = {
    "Produce": ("Produce", 7, {"Acks": 1, "TimeoutMs": 100, "TopicData": []}),
    "Produce, acks=0": ("Produce", 7, {"Acks": 0, "TimeoutMs": 100, "TopicData": []}),
    "Fetch": ("Fetch", 11, {"ReplicaId": -1, "MaxWaitMs": 1, "MinBytes": 0, "Topics": []}),
    "Metadata v0": ("Metadata", 0, {"Topics": []}),
    "Metadata v12": ("Metadata", 12, {"Topics": []}),
    "FindCoordinator": ("FindCoordinator", 1, {"Key": "g"}),
    "ListGroups": ("ListGroups", 0, {}),
    "CreateTopics": ("CreateTopics", 5, {"Topics": [], "timeoutMs": 100}),
    "DescribeCluster": ("DescribeCluster", 0, {}),
    "InitProducerId": ("InitProducerId", 4, {"TransactionalId": None}),
    "LeaderAndIsr": ("LeaderAndIsr", 4, {}),
    "GetTelemetrySubscriptions": ("GetTelemetrySubscriptions", 0, {}),
    "SaslAuthenticate v0": ("SaslAuthenticate", 0, {"AuthBytes": RIGHT}),
    "SaslAuthenticate v2": ("SaslAuthenticate", 2, {"AuthBytes": RIGHT}),
}
FRAMES: dict[str, bytes] = {
    "size zero": struct.pack(">i", 0),
    "size one": framed(b"\0"),
    "size of three": framed(b"\0\x12\0"),
    "a negative size": struct.pack(">i", -1),
    "the largest size": struct.pack(">i", 2**31 - 1),
    "a size above the limit": struct.pack(">i", 524_289) + bytes(16),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("160301002e0100002a0303") + bytes(40),
    "a token of GSSAPI": framed(b"\x60\x82\x01\x02\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(40)),
    "an unknown API": framed(struct.pack(">hhih", 12_345, 0, 1, -1)),
    "a negative API": framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "a token of PLAIN": framed(RIGHT),
    "a header cut short": framed(struct.pack(">hhi", 17, 1, 1)),
    "a handshake cut short": framed(struct.pack(">hhih", 17, 1, 1, -1) + b"\0\x20PLAIN"),
    "a handshake with something behind": framed(struct.pack(">hhih", 17, 1, 1, -1) + b"\0\5PLAIN\0\0"),
    "a handshake with null": framed(struct.pack(">hhih", 17, 1, 1, -1) + b"\xff\xff"),
    "a client id that is too long": framed(struct.pack(">hhih", 17, 1, 1, 9999) + b"\0\5PLAIN"),
    "ApiVersions v0 with something behind": framed(struct.pack(">hhih", 18, 0, 1, -1) + b"more"),
}


def first(api: str, version: int, values: Values, act: Act) -> None:
    """A request before anything else."""
    talk = act.talk()
    talk.ask(api, api, version, values)
    talk.ends()


def after_versions(api: str, version: int, values: Values, act: Act) -> None:
    """A request between ApiVersions and the handshake."""
    talk = act.talk()
    talk.ask("ApiVersions", "ApiVersions", 3, SOFTWARE)
    talk.ask(api, api, version, values)
    talk.ends()


def after_handshake(framing: int, api: str, version: int, values: Values, act: Act) -> None:
    """A request where a token is expected."""
    login = act.login("PLAIN", framing)
    login.talk.ask(api, api, version, values)
    login.talk.ends()


def after_first_token(api: str, version: int, values: Values, act: Act) -> None:
    """A request in the middle of an exchange."""
    login = act.login("SCRAM-SHA-256")
    login.token("first", b"n,,n=alice,r=abcdef", shown=lambda _: "a challenge")
    login.talk.ask(api, api, version, values)
    login.talk.ends()


def after_login(framing: int, api: str, version: int, values: Values, act: Act) -> None:
    """A request of a login after a login, at a listener where logins do not end."""
    login = act.login("PLAIN", framing)
    login.plain()
    login.talk.ask(api, api, version, values)
    login.talk.works()


def without_sasl(api: str, version: int, values: Values, act: Act) -> None:
    """A request of a login at a listener without logins."""
    talk = act.talk("PLAINTEXT")
    talk.ask(api, api, version, values)
    talk.works()


def versions(version: int, values: Values, act: Act) -> None:
    """ApiVersions first, a login after it."""
    talk = act.talk()
    begun = talk.send("ApiVersions", version, values, encoded_as=min(version, 4))
    talk.answer("ApiVersions", "ApiVersions", version if version <= 4 else 0, begun)
    talk.ask("handshake", "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    talk.ask("token", "SaslAuthenticate", 2, {"AuthBytes": RIGHT})
    talk.works()


def versions_twice(act: Act) -> None:
    """ApiVersions, and again."""
    talk = act.talk()
    talk.ask("first", "ApiVersions", 3, SOFTWARE)
    talk.ask("second", "ApiVersions", 3, SOFTWARE)
    talk.ends()


def unknown_then_right(act: Act) -> None:
    """ApiVersions of an unknown version, then one that the broker has: as new clients do with old brokers."""
    talk = act.talk()
    begun = talk.send("ApiVersions", 99, SOFTWARE, encoded_as=3)
    talk.answer("unknown version", "ApiVersions", 0, begun)
    talk.ask("known version", "ApiVersions", 0, {})
    talk.ask("handshake", "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    talk.ends()


def handshake(version: int, mechanism: str, act: Act) -> None:
    """A handshake with a mechanism that is perhaps not there."""
    talk = act.talk()
    begun = talk.send("SaslHandshake", version, {"Mechanism": mechanism}, encoded_as=min(version, 1))
    talk.answer("handshake", "SaslHandshake", min(version, 1), begun)
    talk.ends()


def handshake_twice(framing: int, act: Act) -> None:
    """A handshake in place of the token."""
    login = act.login("PLAIN", framing)
    login.handshake("PLAIN", "again")
    login.talk.ends()


def other_framing(first: int, act: Act) -> None:
    """Tokens in the framing of the other handshake."""
    login = act.login("PLAIN", first)
    if first == RAW:
        login.talk.ask("token", "SaslAuthenticate", 2, {"AuthBytes": RIGHT})
    else:
        login.talk.send_token("token", RIGHT)
    login.talk.ends()


def unknown_version(act: Act) -> None:
    """SaslAuthenticate of an unknown version."""
    login = act.login("PLAIN")
    begun = login.talk.send("SaslAuthenticate", 99, {"AuthBytes": RIGHT}, encoded_as=2)
    login.talk.answer("token", "SaslAuthenticate", 2, begun)
    login.talk.ends()


def frame(data: bytes, act: Act) -> None:
    """Bytes before anything else; then the end of what the client sends."""
    talk = act.talk()
    talk.send_bytes(data)
    talk.ends("answer")
    talk.finish_sending()
    talk.ends("at the end")


def frame_for_token(framing: int, data: bytes, act: Act) -> None:
    """Bytes where a token is expected."""
    login = act.login("PLAIN", framing)
    login.talk.send_bytes(data)
    login.talk.ends("answer")
    login.talk.finish_sending()
    login.talk.ends("at the end")


def at_once(act: Act) -> None:
    """Everything of a login and a request in one write, without waiting for answers."""
    talk = act.talk()
    parts = (
        ("ApiVersions", 3, SOFTWARE),
        ("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"AuthBytes": RIGHT}),
        ("FindCoordinator", 1, {"Key": "g"}),
    )
    begun = talk.send_bytes(b"".join(framed(talk.request(*part)) for part in parts))
    for api, version, _ in parts[:3]:
        talk.answer(api, api, version, begun)


def byte_by_byte(act: Act) -> None:
    """A login of single bytes."""
    talk = act.talk()
    for api, version, values in (
        ("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"AuthBytes": RIGHT}),
    ):
        for byte in framed(talk.request(api, version, values)):
            begun = talk.send_bytes(bytes((byte,)))
        talk.answer(api, api, version, begun)
    talk.works()


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for what, request in REQUESTS.items():
        yield Scenario(f"before: {what}", partial(first, *request))
        yield Scenario(f"after ApiVersions: {what}", partial(after_versions, *request))
        yield Scenario(f"after a token: {what}", partial(after_first_token, *request))
        if request[0] != "SaslAuthenticate":
            for framing in (RAW, NEWEST):
                name = f"for a token {NAMES[framing]}: {what}"
                yield Scenario(name, partial(after_handshake, framing, *request))
    asked = ("ApiVersions", 3, SOFTWARE)
    yield Scenario("for a token v2: ApiVersions", partial(after_handshake, NEWEST, *asked))
    yield Scenario("for a token bare: ApiVersions", partial(after_handshake, RAW, *asked))
    yield Scenario("after a token: ApiVersions", partial(after_first_token, *asked))
    yield Scenario(
        "after a token: SaslHandshake", partial(after_first_token, "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    )
    for version in (0, 1, 2, 3, 4, 5, 99):
        yield Scenario(f"ApiVersions v{version}", partial(versions, version, SOFTWARE if version > 2 else {}))
    for what, software in {
        "no name": {"ClientSoftwareName": "", "ClientSoftwareVersion": "1"},
        "a name with a space": {"ClientSoftwareName": "a b", "ClientSoftwareVersion": "1"},
        "no version": {"ClientSoftwareName": "kit", "ClientSoftwareVersion": ""},
    }.items():
        yield Scenario(f"ApiVersions v3 with {what}", partial(versions, 3, software))
    yield Scenario("ApiVersions twice", versions_twice)
    yield Scenario("ApiVersions of an unknown version, then of a known one", unknown_then_right)
    for version in (0, 1, 2, 99):
        for mechanism in ("PLAIN", "GSSAPI", "plain", "", "SCRAM-SHA-1", "x" * 10_000):
            yield Scenario(
                f"handshake v{version} {mechanism[:20] or 'nothing'}", partial(handshake, version, mechanism)
            )
    for framing in FRAMINGS:
        yield Scenario(f"handshake twice {NAMES[framing]}", partial(handshake_twice, framing))
        if framing in (RAW, NEWEST):
            yield Scenario(
                f"tokens in the other framing than {NAMES[framing]}", partial(other_framing, framing)
            )
    yield Scenario("SaslAuthenticate of an unknown version", unknown_version)
    for what, request in {
        "handshake v0": ("SaslHandshake", 0, {"Mechanism": "PLAIN"}),
        "handshake v1": ("SaslHandshake", 1, {"Mechanism": "PLAIN"}),
        "handshake of another mechanism": ("SaslHandshake", 1, {"Mechanism": "GSSAPI"}),
        "token v0": ("SaslAuthenticate", 0, {"AuthBytes": RIGHT}),
        "token v2": ("SaslAuthenticate", 2, {"AuthBytes": RIGHT}),
        "ApiVersions": ("ApiVersions", 3, SOFTWARE),
    }.items():
        for framing in (RAW, NEWEST):
            yield Scenario(f"after a login {NAMES[framing]}: {what}", partial(after_login, framing, *request))
        yield Scenario(f"without logins: {what}", partial(without_sasl, *request))
    for what, data in FRAMES.items():
        yield Scenario(f"before: {what}", partial(frame, data))
        for framing in (RAW, NEWEST):
            if what != "a token of PLAIN":
                yield Scenario(
                    f"for a token {NAMES[framing]}: {what}", partial(frame_for_token, framing, data)
                )
    yield Scenario("everything at once", at_once)
    yield Scenario("byte by byte", byte_by_byte)
