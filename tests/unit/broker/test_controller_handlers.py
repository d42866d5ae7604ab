"""The front of a controller: its table of APIs, what it refuses, and requests that brokers forward in an Envelope."""

from ipaddress import ip_address
from typing import NamedTuple

import pytest

from barnabas.broker.controller_apis import AS_BROKERS, BY_KEY, CONTROLLER, FORWARDABLE, RAFT
from barnabas.broker.controller_handlers import ControllerHandlers, ControllerServices
from barnabas.broker.quotas import broker_quotas
from barnabas.cluster.kraft.controller.active import ActiveController, Machine
from barnabas.cluster.kraft.controller.machine import HANDLERS
from barnabas.cluster.kraft.controller.outcome import Outcome
from barnabas.cluster.kraft.controller.versions import version_of
from barnabas.cluster.kraft.forwarding import principal_data
from barnabas.cluster.kraft.image import EMPTY
from barnabas.cluster.kraft.store import QuorumStore
from barnabas.cluster.kraft.values import Controller, Endpoint
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import OsThreads, real_environment
from barnabas.errors import RequestError
from barnabas.security.authorizer import AllowEverything, Operation
from barnabas.serving.context import ConnectionInfo, ContextParts, RequestContext
from barnabas.serving.deferred import resolved
from barnabas.serving.encoding import CodecWorker
from barnabas.serving.log_limit import LogLimit
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import Memory
from barnabas.serving.quotas.entities import entity_of
from barnabas.wire import registry
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest
from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest
from barnabas.wire.generated.envelope import EnvelopeRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import decode_response, encode_request
from tests.support.only_voter import OnlyVoter

API_VERSIONS, CREATE_TOPICS, ENVELOPE, DESCRIBE_CLUSTER, DESCRIBE_QUORUM = 18, 19, 58, 60, 55
ADMIN, BROKER = "User:admin", "User:broker"
RANGES = (
    "1:4-18 17:0-1 18:0-5 19:2-7 20:1-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 "
    "43:0-2 44:0-1 45:0-1 46:0-0 49:0-1 50:0-0 51:0-0 52:0-2 53:0-1 54:0-1 55:0-2 56:2-3 57:0-2 58:0-0 59:0-1 60:0-2 "
    "62:0-4 63:0-2 64:0-0 67:0-0 70:0-0 73:0-0 80:0-1 81:0-0 82:0-0 94:0-0"
)
"""APIs of controllers in `ApiKeys` of 4.4.0."""


class Denying:
    """An authorizer that allows nothing but CLUSTER_ACTION to the broker."""

    def allows(self, requester, operation, _resource_type, _name):
        return requester.principal == BROKER and operation is Operation.CLUSTER_ACTION

    def reason(self, *_):
        return "none"


class Front(NamedTuple):
    handlers: ControllerHandlers
    voter: OnlyVoter
    active: ActiveController
    callers: list
    shared: ContextParts

    def context(self, key, version, principal=BROKER):
        peer = ConnectionInfo(1, "CONTROLLER", "PLAINTEXT", ("127.0.0.1", 9093), ("127.0.0.1", 5), principal)
        return RequestContext(self.shared, peer, key, version, 1, "app", 0)

    async def ask(self, key, version, request, **how):
        context = self.context(key, version, **how)
        self.handlers.check(BY_KEY[key], context, request)
        handler = await self.handlers.make(BY_KEY[key])
        return await resolved(handler(context, request))

    async def code_of(self, *arguments, **how):
        with pytest.raises(RequestError) as caught:
            await self.ask(*arguments, **how)
        return caught.value.code


def front(authorizer=None, image=EMPTY, handler=None, quotas=None, key=CREATE_TOPICS):
    voter, callers = OnlyVoter(), []
    voter.image = image

    def create(_state, request, caller):
        callers.append(caller)
        topics = [CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in request.topics]
        return Outcome(CreateTopicsResponse(topics=topics))

    machine = Machine({key: handler or create}, {}, lambda *_: (), lambda *_: None, version_of)
    environment, config = real_environment(), BrokerConfig()
    active = ActiveController(
        config,
        environment,
        machine,
        lambda: voter.image,
        lambda: False,
        cluster_id="cluster",
        batch_bytes_max=1 << 20,
    )
    active.attach(voter)
    budget = LoopBudget()
    services = ControllerServices(
        config, CONTROLLER, 1, environment.wall_clock_ms, environment.threads, CONTROLLER.apis, budget,
        QuorumStore("cluster", 1, budget), CodecWorker(OsThreads(), 1_000), voter, active, lambda: voter.image,
        lambda connection_id, request: callers.append((connection_id, request.broker_id)),
    )  # fmt: skip
    shared = ContextParts(Memory(), LogLimit(lambda: 0.0), authorizer or AllowEverything(), quotas)
    return Front(ControllerHandlers(services), voter, active, callers, shared)


def leading(**how):
    fronted = front(**how)
    fronted.voter.lead(fronted.active)
    return fronted


def enveloped(
    key=CREATE_TOPICS, version=7, request=None, principal=ADMIN, address="10.0.0.7", correlation_id=77
):
    asked = request or CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")])
    frame = b"".join(map(bytes, encode_request(key, version, correlation_id, "app", asked)))
    return EnvelopeRequest(frame[4:], principal_data(principal, is_token=False), ip_address(address).packed)


# --- the table ------------------------------------------------------------------------------------------------------


def test_versions_are_those_of_kafkas_controller():
    assert RANGES.split() == [f"{api.key}:{api.min_version}-{api.max_version}" for api in BY_KEY.values()]


def test_every_api_has_an_answer():
    served = set(HANDLERS) | RAFT | AS_BROKERS | {ENVELOPE, DESCRIBE_CLUSTER, 41, 50}
    assert set(BY_KEY) <= served
    assert set(BY_KEY) >= FORWARDABLE


@pytest.mark.parametrize(
    "key", sorted(set(BY_KEY) - {17, 18, 19, 20, 32, 33, 36, 37, 38, 39, 40, 41, 44, 50})
)
def test_requests_without_permission_are_refused_as_a_whole(key):
    denying = front(Denying())
    with pytest.raises(RequestError) as caught:
        denying.handlers.check(BY_KEY[key], denying.context(key, 0, principal="User:guest"), None)
    assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- who answers ----------------------------------------------------------------------------------------------------


async def test_controller_that_does_not_lead_answers_not_controller():
    assert await front().code_of(CREATE_TOPICS, 7, CreateTopicsRequest()) == ErrorCode.NOT_CONTROLLER


async def test_requests_of_raft_are_answered_by_the_voter():
    idle = front()
    request = DescribeQuorumRequest()
    assert await idle.ask(DESCRIBE_QUORUM, 2, request) is request
    assert idle.voter.asked == [(DESCRIBE_QUORUM, 2)]


async def test_handler_is_told_who_asks():
    led = leading()
    await led.ask(CREATE_TOPICS, 7, CreateTopicsRequest(), principal=ADMIN)
    (caller,) = led.callers
    assert (caller.version, caller.principal, caller.host) == (7, ADMIN, "127.0.0.1")
    assert (caller.is_forwarded, caller.security_protocol) == (False, "PLAINTEXT")


async def test_connection_of_a_heartbeat_is_noted_before_it_is_handled():
    idle = front()
    assert await idle.code_of(63, 2, BrokerHeartbeatRequest(broker_id=7)) == ErrorCode.NOT_CONTROLLER
    assert idle.callers == [(1, 7)]


# --- DescribeCluster ------------------------------------------------------------------------------------------------


def described(level=30):
    endpoints = (Endpoint("CONTROLLER", "a", 9093, 0), Endpoint("OTHER", "b", 9094, 0))
    return EMPTY._replace(
        features={"metadata.version": level}, controllers={1: Controller(1, bytes(16), endpoints)}
    )


async def test_controllers_are_described_by_the_listener_that_is_asked():
    led = leading(image=described())
    response = await led.ask(DESCRIBE_CLUSTER, 1, DescribeClusterRequest(endpoint_type=2))
    assert [(node.broker_id, node.host, node.port) for node in response.brokers] == [(1, "a", 9093)]
    assert (response.cluster_id, response.controller_id, response.endpoint_type) == ("cluster", 1, 2)


@pytest.mark.parametrize(
    ("level", "version", "kind", "code"),
    [
        (14, 1, 2, ErrorCode.UNSUPPORTED_VERSION),
        (30, 0, 1, ErrorCode.INVALID_REQUEST),
        (30, 1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (30, 1, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_other_end_points_are_not_described(level, version, kind, code):
    led = front(image=described(level))
    assert await led.code_of(DESCRIBE_CLUSTER, version, DescribeClusterRequest(endpoint_type=kind)) == code


@pytest.mark.parametrize("key", [41, 50])
async def test_apis_that_kafkas_controller_fails_fail_here(key):
    assert await leading().code_of(key, BY_KEY[key].max_version, None) == ErrorCode.UNKNOWN_SERVER_ERROR


# --- Envelope -------------------------------------------------------------------------------------------------------


async def test_forwarded_request_is_answered_in_its_clients_frame():
    led = leading()
    response = await led.ask(ENVELOPE, 0, enveloped())
    correlation_id, answer = decode_response(bytes(response.response_data), CREATE_TOPICS, 7)
    assert (response.error_code, correlation_id) == (0, 77)
    assert [topic.name for topic in answer.topics] == ["t"]
    (caller,) = led.callers
    assert (caller.principal, caller.host, caller.client_id) == (ADMIN, "10.0.0.7", "app")
    assert caller.is_forwarded


async def test_forwarded_request_may_have_a_large_answer():
    names = [f"{number:0240}" for number in range(500)]
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name) for name in names])
    response = await leading().ask(ENVELOPE, 0, enveloped(request=request))
    _, answer = decode_response(bytes(response.response_data), CREATE_TOPICS, 7)
    assert [topic.name for topic in answer.topics] == names


@pytest.mark.parametrize(
    ("key", "version", "is_refused"),
    [(19, 5, False), (19, 6, True), (20, 4, False), (20, 5, True), (37, 2, False)],
)
async def test_forwarded_client_over_its_quota_is_throttled(key, version, is_refused):
    refused = []

    def charged(_state, request, caller):
        for _ in range(2):
            try:
                caller.charge(f"t{len(refused)}", 5)
            except RequestError as error:
                refused.append(error.code)
            else:
                refused.append(0)
        return Outcome(registry.response_codec(key).message())

    quotas = broker_quotas(BrokerConfig(), CONTROLLER.apis, LoopBudget(), lambda: 0.0)
    entity = entity_of([("user", "admin")])
    quotas.follow({entity: {"controller_mutation_rate": 0.1}}, [entity])
    led = leading(quotas=quotas, handler=charged, key=key)
    request = registry.request_codec(key).message()
    request.timeout_ms = 1000
    response = await led.ask(ENVELOPE, 0, enveloped(key, version, request))
    _, answer = decode_response(bytes(response.response_data), key, version)
    assert refused == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_refused else 0]
    assert answer.throttle_time_ms > 30_000


async def test_refusal_of_a_forwarded_request_is_in_its_answer():
    def refuse(*_):
        raise RequestError(ErrorCode.POLICY_VIOLATION, "no")

    response = await leading(handler=refuse).ask(ENVELOPE, 0, enveloped())
    _, answer = decode_response(bytes(response.response_data), CREATE_TOPICS, 7)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", ErrorCode.POLICY_VIOLATION)]


async def test_forwarded_request_is_authorized_for_its_client():
    denying = front(Denying())
    request = registry.request_codec(30).message()
    request.creations.append(type(request).AclCreation())
    response = await denying.ask(ENVELOPE, 0, enveloped(30, 3, request))
    _, answer = decode_response(bytes(response.response_data), 30, 3)
    assert [result.error_code for result in answer.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


async def test_broker_without_cluster_action_may_not_forward():
    denying = front(Denying())
    code = await denying.code_of(ENVELOPE, 0, enveloped(), principal=ADMIN)
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (enveloped(), ErrorCode.NOT_CONTROLLER),
        (enveloped(3, 12, registry.request_codec(3).message()), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(b"\0", principal_data(ADMIN, is_token=False), bytes(4)), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeRequest(b"\0\x13\0\x63\0\0\0\1\0\0\0", principal_data(ADMIN, is_token=False), bytes(4)),
         ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeRequest(enveloped().request_data[:-4], principal_data(ADMIN, is_token=False), bytes(4)),
         ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeRequest(enveloped().request_data, b"\0\0\x09ab", bytes(4)),
         ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(enveloped().request_data, b"\0\1", bytes(4)),
         ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(enveloped().request_data, principal_data(ADMIN, is_token=False), bytes(5)),
         ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
async def test_envelope_itself_has_the_error(envelope, code):
    assert await front().code_of(ENVELOPE, 0, envelope) == code


async def test_clients_of_other_nodes_must_bootstrap_again():
    fronted = leading()
    software = {"client_software_name": "x", "client_software_version": "1"}
    answer = await fronted.ask(
        API_VERSIONS, 5, ApiVersionsRequest(**software, cluster_id="cluster", node_id=1)
    )
    assert len(answer.api_keys) == len(BY_KEY)
    for cluster_id, node_id, code in (
        ("cluster", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("cluster", -1, ErrorCode.INVALID_REQUEST),
    ):
        request = ApiVersionsRequest(**software, cluster_id=cluster_id, node_id=node_id)
        assert await fronted.code_of(API_VERSIONS, 5, request) == code
