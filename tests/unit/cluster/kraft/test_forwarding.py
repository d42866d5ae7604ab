"""Requests that the active controller answers: what it is sent, and what a client is answered where it cannot be asked."""

import struct
from dataclasses import dataclass, field

import pytest
import trio

from barnabas.cluster.kraft.forwarding import Forwarder, principal_data
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.errors import PeerError, RequestError
from barnabas.serving import apis
from barnabas.serving.context import ConnectionInfo, RequestContext
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.envelope import EnvelopeResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_request, encode_response
from tests.support.contexts import open_parts

CREATE_TOPICS, VERSION = 19, 7
REQUEST = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("t", 3, 2)], timeout_ms=500)


@dataclass
class Controllers:
    """The active controller, as it answers."""

    answer: object = None
    versions: dict[int, tuple[int, int]] | None = None
    asked: list[object] = field(default_factory=list)

    async def ask_controller(self, request, *, timeout_s, channel):
        self.asked.append((request, timeout_s, channel))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def controller_versions(self):
        return self.versions


def context(host="10.0.0.7", principal="User:alice", **connection):
    info = ConnectionInfo(1, "L", "SASL_SSL", ("127.0.0.1", 9092), (host, 5000), principal, **connection)
    return RequestContext(open_parts(), info, CREATE_TOPICS, VERSION, 77, "app", 0)


def answered(response):
    return EnvelopeResponse(b"".join(map(bytes, encode_response(CREATE_TOPICS, VERSION, 77, response)))[4:])


def forward(controllers, of):
    return trio.run(Forwarder(controllers).forward, of, REQUEST)


def test_envelope_has_request_principal_and_address():
    response = CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name="t")])
    controllers = Controllers(answered(response))
    assert forward(controllers, context()) == response
    [(envelope, timeout_s, channel)] = controllers.asked
    frame = b"".join(map(bytes, encode_request(CREATE_TOPICS, VERSION, 77, "app", REQUEST)))
    assert envelope.request_data == frame[4:]
    assert envelope.request_principal == b"\0\0\x05User\x06alice\0\0"
    assert envelope.client_host_address == bytes([10, 0, 0, 7])
    assert (timeout_s, channel) == (60.0, "forwarding")


def test_large_request_is_forwarded_whole():
    topics = [CreateTopicsRequest.CreatableTopic(f"{number:0240}", 3, 2) for number in range(500)]
    controllers = Controllers(answered(CreateTopicsResponse()))
    trio.run(Forwarder(controllers).forward, context(), CreateTopicsRequest(topics))
    (envelope, _, _) = controllers.asked[0]
    assert len(envelope.request_data) > 500 * 240


def test_principal_of_a_token_says_so():
    assert principal_data("User:é", is_token=True) == b"\0\0\x05User\x03\xc3\xa9\x01\0"


def test_address_of_ipv6_has_16_bytes():
    controllers = Controllers(answered(CreateTopicsResponse()))
    forward(controllers, context(host="fe80::1%eth0"))
    assert controllers.asked[0][0].client_host_address == struct.pack(">QQ", 0xFE80 << 48, 1)


def test_throttle_time_of_the_controller_mutes_the_client_here():
    of = context()
    forward(Controllers(answered(CreateTopicsResponse(throttle_time_ms=400))), of)
    assert of.connection.muted_ms == 400


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (PeerUnavailableError("no controller is elected"), ErrorCode.REQUEST_TIMED_OUT),
        (EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_request_that_is_not_answered_gets_an_error(answer, code):
    with pytest.raises(RequestError) as raised:
        forward(Controllers(answer), context())
    assert raised.value.code == code


def test_version_that_the_controller_lacks_closes_the_connection():
    with pytest.raises(PeerError, match="version 7"):
        forward(Controllers(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)), context())


@pytest.mark.parametrize(
    ("versions", "advertised"),
    [
        (None, (2, 7)),
        ({CREATE_TOPICS: (0, 9)}, (2, 7)),
        ({CREATE_TOPICS: (3, 5)}, (3, 5)),
        ({CREATE_TOPICS: (8, 9)}, None),
        ({}, None),
    ],
)
def test_advertised_versions_are_those_that_both_serve(versions, advertised):
    api = apis.BY_KEY[CREATE_TOPICS].in_versions(2, 7)
    narrowed = Forwarder(Controllers(versions=versions)).advertised(api)
    assert (narrowed and (narrowed.min_version, narrowed.max_version)) == advertised


def test_apis_of_the_broker_itself_are_advertised_as_they_are():
    api = apis.BY_KEY[apis.METADATA]
    assert Forwarder(Controllers(versions={})).advertised(api) is api
