"""A request's context names the client, checks its permissions, writes to the log, and holds memory."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.errors import RequestError
from barnabas.security.authorizer import AllowEverything, Operation, Requester, ResourceType
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.serving.context import (
    NAME_SHOWN,
    REASON_SHOWN,
    ConnectionInfo,
    ContextParts,
    RequestContext,
    shown_client,
)
from barnabas.serving.last_request import LastRequest
from barnabas.serving.log_limit import LINES_MAX, LogLimit
from barnabas.serving.login import token_answered, wait_after_failure
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.memory import SMALL_BYTES_MAX, Memory
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import parse_request_header

LOCAL, PEER = ("127.0.0.1", 9092), ("10.0.0.7", 50_000)
READ, TOPIC, CLUSTER = Operation.READ, ResourceType.TOPIC, ResourceType.CLUSTER


class Rules:
    """An authorizer that allows these: operation, resource type and name."""

    def __init__(self, *allowed: tuple[Operation, ResourceType, str], why: str = "a rule") -> None:
        self.allowed = allowed
        self.why = why
        self.asked: list[Requester] = []

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked.append(requester)
        return (operation, resource_type, name) in self.allowed

    def allows_on_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return any(access[:2] == (operation, resource_type) for access in self.allowed)

    def reason(self, *asked: object) -> str:
        return self.why


def connection(
    peer: tuple[str, int] = PEER, principal: str = "User:alice", number: int = 4
) -> ConnectionInfo:
    return ConnectionInfo(number, "PLAINTEXT", "PLAINTEXT", LOCAL, peer, principal)


def context_of(
    authorizer: Any = None, info: ConnectionInfo | None = None, api_key: int = 3
) -> RequestContext:
    shared = ContextParts(Memory(), LogLimit(lambda: 0.0), authorizer or AllowEverything())
    return RequestContext(shared, info or connection(), api_key, 9, 17, "app", 1_000)


# --- who asks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "host", "client_host", "shown"),
    [
        (("10.0.0.7", 5), "10.0.0.7", "/10.0.0.7", "10.0.0.7:5->127.0.0.1:9092#4"),
        (("::1", 5), "0:0:0:0:0:0:0:1", "/::1", "[::1]:5->127.0.0.1:9092#4"),
        (("::ffff:10.0.0.7", 5), "10.0.0.7", "/::ffff:10.0.0.7", "[::ffff:10.0.0.7]:5->127.0.0.1:9092#4"),
    ],
)
def test_a_peer_is_named_as_acls_as_kafka_and_as_the_log_name_it(peer, host, client_host, shown):
    info = connection(peer)
    assert info.requester == Requester("User:alice", host)
    assert (info.client_host, info.user, str(info)) == (client_host, "alice", shown)
    assert connection(principal="User:a:b").user == "a:b"


@pytest.mark.parametrize(
    ("client_id", "shown"),
    [
        (None, "None"),
        ("a'b\n", '"a\'b\\n"'),
        ("x" * NAME_SHOWN, repr("x" * NAME_SHOWN)),
        ("x" * (NAME_SHOWN + 1), f"{'x' * NAME_SHOWN!r}... ({NAME_SHOWN + 1} characters)"),
    ],
)
def test_a_client_id_is_shown_quoted_and_cut(client_id, shown):
    assert shown_client(client_id) == shown


@pytest.mark.parametrize(("api_key", "name"), [(3, "Metadata"), (9999, "API key 9999")])
def test_request_is_named_in_the_log_a_few_times_per_host(api_key, name, caplog):
    log = logging.getLogger("test")
    context = context_of(api_key=api_key)
    for number in range(LINES_MAX + 1):
        context.log(log, logging.WARNING, "refused requests", "no %d", number)
    other = context_of(info=connection(("10.0.0.8", 1)))
    other.shared = context.shared
    other.log(log, logging.WARNING, "refused requests", "other")
    assert len(caplog.messages) == LINES_MAX + 1
    assert caplog.messages[0] == (
        f"no 0: {name} v9 (correlation id 17) from client 'app' on 10.0.0.7:50000->127.0.0.1:9092#4"
    )
    assert caplog.messages[-1].startswith("other: Metadata v9")


# --- what may be done -----------------------------------------------------------------------------------------------


async def test_only_allowed_operations_pass_with_errors_by_type():
    rules = Rules((READ, TOPIC, "t"))
    context = context_of(rules)
    assert context.asks_authorizer
    assert [context.authorizes(READ, TOPIC, name) for name in "tu"] == [True, False]
    assert [context.authorizes_on_any(needed, TOPIC) for needed in (READ, Operation.WRITE)] == [True, False]
    context.require(READ, TOPIC, "t")
    await context.require_each(READ, TOPIC, ["t", "t"], LoopBudget())
    assert context.authorized_operations(TOPIC, "t") == 1 << READ
    for kind, code in (
        (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):  # fmt: skip
        with pytest.raises(RequestError) as refused:
            await context.require_each(READ, kind, ["t", "u"][kind is TOPIC :], LoopBudget())
        assert refused.value.code == code
    assert {requester.principal for requester in rules.asked} == {"User:alice"}


@pytest.mark.parametrize("describes", [True, False])
def test_cluster_operations_are_told_to_who_may_describe(describes):
    allowed = [(Operation.ALTER, CLUSTER, "kafka-cluster")]
    if describes:
        allowed.append((Operation.DESCRIBE, CLUSTER, "kafka-cluster"))
    told = context_of(Rules(*allowed)).cluster_operations()
    assert told == (1 << Operation.ALTER | 1 << Operation.DESCRIBE if describes else 0)


def test_refusals_in_answers_are_logged_and_omissions_are_not(caplog):
    caplog.set_level(logging.INFO, "barnabas.authorizer")
    context = context_of(Rules((READ, TOPIC, "t"), why="a\nrule" + "r" * REASON_SHOWN))
    assert context.authorizes(READ, TOPIC, "t")
    assert not context.authorizes(READ, TOPIC, "hidden", is_asked_for=False)
    assert caplog.messages == []
    assert not context.authorizes(READ, TOPIC, "n" * NAME_SHOWN + "left out")
    rule = repr("a\nrule" + "r" * (REASON_SHOWN - 6))
    assert caplog.messages == [
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.7 on resource = "
        f"Topic:LITERAL:{'n' * NAME_SHOWN} for request = Metadata based on rule {rule}"
    ]
    assert caplog.records[0].levelno == logging.WARNING
    for _ in range(2 * LINES_MAX):
        context.authorizes(READ, TOPIC, "u")
    assert len(caplog.messages) == LINES_MAX


# --- memory and quotas ------------------------------------------------------------------------------------------------


async def test_request_holds_its_reservation_until_released():
    context = context_of()
    info, memory = context.connection, context.shared.memory
    context.unreserve(5)
    assert info.reserved == 0
    info.request = context
    assert info.reserved == 0
    await context.reserve(100)
    await context.reserve(50)
    assert (info.reserved, memory.small_responses.held) == (150, 150)
    context.unreserve(30)
    assert (info.reserved, memory.held) == (120, 120)
    context.unreserve(1_000)
    assert (info.reserved, memory.held) == (0, 0)
    other = context_of()
    other.shared = context.shared
    await other.reserve(SMALL_BYTES_MAX + 1)
    assert memory.large_responses.held == SMALL_BYTES_MAX + 1


# --- the last request -------------------------------------------------------------------------------------------------


def test_repeated_request_may_differ_in_correlation_id_alone():
    frame = memoryview(bytearray(b"\0\x0c\0\1\0\0\0\7\0\1crest"))
    last = LastRequest(frame, parse_request_header(frame), "request")
    assert last.is_repeated_by(frame)
    for position in range(len(frame)):
        other = bytearray(frame)
        other[position] ^= 0x81
        assert last.is_repeated_by(memoryview(other)) is (4 <= position < 8)
        if 4 <= position < 8:
            assert last.header.correlation_id == int.from_bytes(other[4:8], "big", signed=True)
    assert not last.is_repeated_by(frame[:-1])
    assert not last.is_repeated_by(memoryview(bytes(frame) + b"\0"))


# --- logins -------------------------------------------------------------------------------------------------------------


class Login:
    """Stands for the login of a connection."""

    mechanism = "PLAIN"

    def __init__(self, *, is_done: bool = True, by_token: bool = False, failure: bool = False) -> None:
        self.is_done = is_done
        self.failure = failure
        self.has_failed = failure
        self.identity: Any = SimpleNamespace(name="bob", is_by_token=by_token)
        self.offer = SimpleNamespace(failure_delay_ms=100)
        self.completed: tuple[float, float] | None = None

    async def evaluate(self, token: bytes) -> bytes:
        if self.failure:
            raise LoginFailedError("wrong password")
        return token.upper()

    def complete(self, wall_ms: int, steady_ms: float) -> int:
        self.completed = wall_ms, steady_ms
        return 77


async def answered(login: Login) -> tuple[ConnectionInfo, Any]:
    info = connection(principal="User:ANONYMOUS")
    info.login = login  # type: ignore[assignment]
    return info, await token_answered(info, b"token", clock_ms=lambda: 5, log_limit=LogLimit(lambda: 0.0))


@pytest.mark.parametrize("by_token", [True, False])
async def test_who_has_logged_in_is_known_from_then_on(by_token, autojump_clock):
    info, answer = await answered(login := Login(by_token=by_token))
    assert answer == (b"TOKEN", 77)
    assert (info.principal, info.token_authenticated) == ("User:bob", by_token)
    assert login.completed == (5, trio.current_time() * 1000)


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_login_that_is_not_at_its_end_changes_nothing(is_done):
    login = Login(is_done=is_done)
    if is_done:
        login.identity = None
    info, _ = await answered(login)
    assert (info.principal, info.token_authenticated) == ("User:ANONYMOUS", False)


async def test_failure_is_logged_with_its_cause_and_no_token(caplog):
    with pytest.raises(LoginFailedError):
        await answered(Login(failure=True))
    [line] = caplog.messages
    assert line.startswith("login with PLAIN on listener PLAINTEXT failed: wrong password: 10.0.0.7:50000->")
    assert "token" not in line.lower()


@pytest.mark.parametrize(
    ("login", "seconds"),
    [(None, 0), (Login(), 0), (Login(failure=True), 0.1)],
    ids=["no login", "not failed", "failed"],
)
async def test_who_has_failed_waits(login, seconds, autojump_clock):
    info = connection()
    info.login = login
    began = trio.current_time()
    await wait_after_failure(info)
    assert trio.current_time() - began == pytest.approx(seconds)
