"""The stages of a request beside authorisation and handler: connection state, quotas, throttling."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from barnabas.errors import PeerError, RequestError
from barnabas.security.sasl.mechanism import Mechanism
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.server import SaslOffer, SaslServer
from barnabas.serving.connection import Connection
from barnabas.serving.context import ConnectionInfo
from barnabas.serving.request import Request
from barnabas.serving.request_parts import RequestParts
from barnabas.serving.stages import STAGES
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.headers import decode_response
from tests.support.broker import broker_to_ask
from tests.support.connection_parts import copied
from tests.support.request_parts import answered, frame_of
from tests.support.request_parts import request_parts_of as make_request_parts

CREATE_TOPICS, METADATA, THROTTLE_MS = 19, 3, 700


class FixedQuotas:
    """Throttles all clients alike, and refuses to make topics; remembers what it was charged."""

    is_set = True

    def __init__(self) -> None:
        self.charged: list[tuple[int, int]] = []
        self.ended = 0
        self._api_key = 0

    def begin(self, _user: str, _client_id: str | None, api_key: int) -> FixedQuotas:
        self._api_key = api_key
        return self

    def mutations(self, *, refuses: bool) -> FixedQuotas:
        assert refuses
        return self

    def charge(self, _topic: str, _partitions: int) -> None:
        raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many topics")

    def throttle_ms(self, _request: Any, request_bytes: int) -> int:
        self.charged.append((self._api_key, request_bytes))
        return THROTTLE_MS

    def end(self) -> None:
        self.ended += 1


class Sent:
    """A transport from which frames come, and that keeps what is sent, and when it was read from and sent to."""

    def __init__(self, *frames: memoryview) -> None:
        self.data = b""
        self.frames = [len(frame).to_bytes(4, "big") + bytes(frame) for frame in frames]
        self.read_at: list[float] = []
        self.sent_at: list[float] = []

    def report_to(self, _connection: object) -> None:
        """No client falls behind here."""

    def is_only_readable(self, seconds: float) -> bool:
        return False

    async def wait_readable(
        self, *, soon: bool = True, is_crowded: bool = False, arrived: object = None
    ) -> None:
        """There is always something to read, if only the end."""

    def expect(self, size: int) -> None:
        """Whatever comes is read."""

    def receive_now(self, view: memoryview) -> int | None:
        self.read_at.append(trio.current_time())
        frame = self.frames.pop(0) if self.frames else b""
        view[: len(frame)] = frame
        return len(frame)

    def send_now(self, data: bytes) -> int:
        self.sent_at.append(trio.current_time())
        self.data += bytes(data)
        return len(data)

    async def send(self, chunks: list[Any]) -> None:
        self.sent_at.append(trio.current_time())
        self.data += b"".join(bytes(chunk) for chunk in chunks)

    def close(self) -> None:
        """Nothing is open."""


def connection_info(protocol: str = "PLAINTEXT") -> ConnectionInfo:
    addresses = ("127.0.0.1", 9092), ("127.0.0.1", 50_000)
    offer = SaslOffer({"PLAIN": Mechanism(lambda: PlainExchange({}))}, 1000, 0)
    login = SaslServer(offer) if protocol.startswith("SASL") else None
    return ConnectionInfo(1, protocol, protocol, *addresses, login=login)


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        yield asked


def request_parts_of(asked: Any, quotas: FixedQuotas | None = None) -> RequestParts:
    return make_request_parts(asked.services, asked.broker.memory, quotas=quotas)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_only_two_apis_are_answered_before_a_mechanism_is_chosen(asked, protocol):
    keys, sent = set(), Sent()
    for key, api in asked.services.served.items():
        frame = frame_of(METADATA, 1, MetadataRequest())
        frame[:4] = key.to_bytes(2, "big") + api.min_version.to_bytes(2, "big")
        try:
            await answered(request_parts_of(asked), connection_info(protocol), sent, frame)
        except PeerError as error:
            if f"{api.name} (correlation id 7) before authentication" in str(error):
                continue
        keys.add(key)
    assert keys == {17, 18}


async def test_client_over_its_quota_is_answered_and_then_not_read(asked, autojump_clock):
    quotas, frame = FixedQuotas(), frame_of(METADATA, 9, MetadataRequest())
    sent, parts = Sent(frame, frame), asked.broker.connections.parts
    await Connection(
        copied(parts, begin=partial(Request, STAGES, request_parts_of(asked, quotas))), sent, connection_info(),
    ).serve()  # fmt: skip
    # From the answers on: until there is one, the clock also jumps while a thread of the broker is at work.
    pauses = [read - answered for answered, read in zip(sent.sent_at, sent.read_at[1:], strict=True)]
    assert pauses == pytest.approx([THROTTLE_MS / 1000] * 2)
    assert quotas.charged == [(METADATA, len(frame))] * 2
    assert quotas.ended == 2
    answer = sent.data[4 : len(sent.data) // 2]
    assert decode_response(answer, METADATA, 9)[1].throttle_time_ms == THROTTLE_MS


@pytest.mark.parametrize("request_of", ["an unknown API key", "a body that is cut short"])
async def test_a_long_client_id_makes_no_long_line_of_the_log(asked, request_of):
    frame = bytes(frame_of(METADATA, 1, MetadataRequest(), client_id="ü" * 10_000))
    frame = frame[:-1] if request_of.startswith("a body") else b"\x7f\xff" + frame[2:]
    request_parts = request_parts_of(asked)
    with pytest.raises(PeerError, match=r"client 'ü+'\.\.\. \(10000 characters\)") as refused:
        await answered(request_parts, connection_info(), Sent(), memoryview(bytearray(frame)))
    assert len(str(refused.value)) < 500
