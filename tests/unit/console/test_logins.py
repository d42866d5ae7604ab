"""Visitors of the console let in and sent away: tokens, users, mechanisms, room, what a refusal costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import AuthenticationError, ClientError, Endpoint
from barnabas.client.settings import SaslCredentials
from barnabas.console.base import ConsoleError
from barnabas.console.sessions import (
    CHECK_SECONDS,
    IDLE_SECONDS_MAX,
    LIFE_SECONDS_MAX,
    LOGIN_SECONDS,
    REFUSED_SECONDS,
    SESSIONS_MAX,
    USER_SESSIONS_MAX,
    Session,
    Sessions,
)
from barnabas.console.target import PATIENCE, Target
from barnabas.console.turns import OWNER_READS_MAX, READS_MAX, Reads
from barnabas.errors import AnswerError
from barnabas.network.turns import ADDRESS_LOGINS_MAX, LOGINS_MAX, WAITING_MAX

MECHANISMS = ("SCRAM-SHA-512", "PLAIN")
SANDBOX: Any = None


class World:
    """A cluster that takes logins, and what it was asked."""

    def __init__(self, *mechanisms: str) -> None:
        self.target = Target((Endpoint("h", 1),), mechanisms)
        self.opened: list[Any] = []
        self.failure: Exception | None = None
        self.seconds = 0.0
        """Time that a login takes."""
        self.tried_again = 0

    @asynccontextmanager
    async def open_backend(self, target: Target, settings: Any, live: Any, *_: Any) -> AsyncIterator[Any]:
        self.opened.append((target, settings.sasl, live))
        await trio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        yield object()

    @asynccontextmanager
    async def open_client(self, *_: Any, **named: Any) -> AsyncIterator[Any]:
        self.tried_again += 1
        yield self

    async def any_connection(self) -> None:
        if self.failure is not None:
            raise self.failure


@asynccontextmanager
async def running(world: World, token: str = "") -> AsyncIterator[Sessions]:
    logins = Sessions(
        lambda: world.target, token, None, None, SANDBOX,
        open_backend=world.open_backend, open_client=world.open_client,
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logins.run)
        await trio.testing.wait_all_tasks_blocked()
        yield logins
        nursery.cancel_scope.cancel()


async def refused(logins: Sessions, **login: str) -> tuple[int, str, float]:
    """Return the status and the text of a refusal, and the seconds that it has cost."""
    began = trio.current_time()
    with pytest.raises(ConsoleError) as raised:
        await logins.begin(**login)
    return raised.value.status, str(raised.value), trio.current_time() - began


async def test_user_logs_in_by_the_named_or_the_first_mechanism(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins:
        session = await logins.begin(user="ann", password="pw")
        assert (session.user, session.settings.sasl) == ("ann", SaslCredentials("SCRAM-SHA-512", "ann", "pw"))
        assert session.settings.client_id == PATIENCE.client_id
        assert logins.find(session.identity) is session
        other = await logins.begin(user="ann", password="pw", mechanism="PLAIN")
        assert [sasl.mechanism for _, sasl, _ in world.opened] == ["SCRAM-SHA-512", "PLAIN"]
        assert len({session.identity, session.csrf, other.identity, other.csrf}) == 4
        assert await refused(logins, user="ann", password="pw", mechanism="GSSAPI") == (
            400, "mechanism: one of SCRAM-SHA-512, PLAIN expected", 0,
        )  # fmt: skip
        for login in ({"user": "ann"}, {"password": "pw"}, {}):
            assert await refused(logins, **login) == (401, "a user and a password are needed", 0)
        assert len(world.opened) == 2


async def test_a_wrong_password_costs_time_and_leaves_no_session(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins:
        world.failure = ClientError("who are you?")
        began = trio.current_time()
        with pytest.raises(ClientError, match="who are you"):
            await logins.begin(user="ann", password="wrong")
        assert trio.current_time() - began == pytest.approx(REFUSED_SECONDS)
        assert logins.users == ()


async def _try(logins: Sessions, user: str, address: str, refusals: list[int]) -> None:
    try:
        await logins.begin(user=user, password="wrong", address=address)
    except AnswerError as error:
        refusals.append(error.status)
    except ClientError:
        refusals.append(401)


async def test_wrong_passwords_hold_up_no_right_one_of_others(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins, trio.open_nursery() as nursery:
        world.failure = ClientError("who are you?")
        refusals: list[int] = []
        for _ in range(40):
            nursery.start_soon(_try, logins, "eve", "1.2.3.4", refusals)
        await trio.testing.wait_all_tasks_blocked()
        assert refusals == [429] * (40 - WAITING_MAX - 1), "the queue of one user from one address is short"
        world.failure = None
        began = trio.current_time()
        await logins.begin(user="ann", password="pw", address="1.2.3.4")
        await logins.begin(user="eve", password="pw", address="5.6.7.8")
        assert trio.current_time() == began, "neither another user waits nor the user at another address"
        world.failure = ClientError("who are you?")
    assert trio.current_time() - began == pytest.approx((WAITING_MAX + 1) * REFUSED_SECONDS)
    assert refusals[40 - WAITING_MAX - 1 :] == [401] * (WAITING_MAX + 1)


async def test_slow_logins_of_an_address_leave_room_for_others(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    assert ADDRESS_LOGINS_MAX < LOGINS_MAX
    async with running(world) as logins, trio.open_nursery() as nursery:
        world.seconds = 10
        for number in range(50):
            nursery.start_soon(_try, logins, f"user-{number}", "1.2.3.4", [])
        await trio.testing.wait_all_tasks_blocked()
        assert len(world.opened) == ADDRESS_LOGINS_MAX
        world.seconds = 0
        began = trio.current_time()
        await logins.begin(user="ann", password="pw", address="5.6.7.8")
        assert trio.current_time() == began


async def test_a_user_who_is_gone_is_out_after_a_while(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins:
        session = await logins.begin(user="ann", password="pw")
        world.failure = AuthenticationError("who are you?")
        await logins.prove(session)
        assert world.tried_again == 0, "the login was just tried"
        await trio.sleep(LOGIN_SECONDS)
        with pytest.raises(ConsoleError) as raised:
            await logins.prove(session)
        assert raised.value.status == 401
        assert logins.find(session.identity) is None
        assert session.scope.cancel_called


async def test_a_stream_of_a_user_who_is_gone_ends_by_itself(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins:
        session = await logins.begin(user="ann", password="pw")
        world.failure = AuthenticationError("who are you?")
        with trio.fail_after(LOGIN_SECONDS + 2 * CHECK_SECONDS), trio.CancelScope() as request:
            session.requests.add(request)
            await trio.sleep_forever()
        assert request.cancelled_caught


async def test_a_broker_that_is_away_ends_no_session(autojump_clock: object) -> None:
    world = World(*MECHANISMS)
    async with running(world) as logins:
        session = await logins.begin(user="ann", password="pw")
        world.failure = ClientError("away")
        await trio.sleep(LOGIN_SECONDS)
        await logins.prove(session)
        await logins.prove(session)
        assert world.tried_again == 1, "not again at once"
        assert logins.find(session.identity) is session


async def test_logins_of_one_user_end_sessions_of_that_user_alone(autojump_clock: object) -> None:
    async with running(World(*MECHANISMS)) as logins:
        ann = await logins.begin(user="ann", password="pw")
        own: list[Session] = []
        for number in range(66):
            await trio.sleep(0.1)
            own.append(await logins.begin(user="bob", password="pw", address=f"1.2.3.{number}"))
        assert logins.find(ann.identity) is ann
        assert [listed for listed in own if logins.find(listed.identity)] == own[-USER_SESSIONS_MAX:]


async def test_where_there_are_many_the_one_longest_unused_makes_room(autojump_clock: object) -> None:
    async with running(World()) as logins:
        first = await logins.begin()
        first.requests.add(trio.CancelScope())
        await trio.sleep(1)
        second = await logins.begin()
        await trio.sleep(1)
        others = [await logins.begin() for _ in range(SESSIONS_MAX - 2)]
        assert len(logins.users) == SESSIONS_MAX
        await trio.sleep(1)
        await logins.begin()
        assert logins.find(second.identity) is None, "the first has not been used for longer, but is answered"
        assert logins.find(first.identity) is first
        assert second.scope.cancel_called
        assert not others[0].scope.cancel_called
        for user in logins.users:
            user.requests.add(trio.CancelScope())
        await logins.begin()
        assert len(logins.users) == SESSIONS_MAX, "where all are answered one of them goes"


async def test_a_cookie_finds_a_session_as_long_as_it_lasts(autojump_clock: object) -> None:
    async with running(World()) as logins:
        session = await logins.begin()
        for _ in range(3):
            await trio.sleep(IDLE_SECONDS_MAX - 1)
            assert logins.find(session.identity) is session, "finding it is using it"
        assert logins.find("") is None
        assert logins.find("other") is None
        await trio.sleep(IDLE_SECONDS_MAX + 1)
        assert logins.find(session.identity) is None
        await trio.sleep(CHECK_SECONDS)
        assert logins.users == ()
        assert session.scope.cancel_called


async def test_all_who_look_without_a_session_share_one(autojump_clock: object) -> None:
    async with running(World()) as logins:
        first = await logins.anonymous()
        assert (first.user, first.settings.sasl) == ("", None)
        for _ in range(int(LIFE_SECONDS_MAX // 1000)):
            await trio.sleep(1000)
            assert await logins.anonymous() is first
        await trio.sleep(1000)
        second = await logins.anonymous()
        assert second is not first
        await trio.sleep(IDLE_SECONDS_MAX + CHECK_SECONDS + 1)
        assert second.scope.cancel_called
        assert logins._anonymous is None


async def test_session_without_a_client_says_why_and_tries_again(autojump_clock: object) -> None:
    world = World()
    async with running(world) as logins:
        session = await logins.begin()
        world.failure = ClientError("away")
        with pytest.raises(ClientError, match="away"):
            await logins.open(session)
        world.failure = None
        assert await logins.open(session) is session.backend
        logins.end(session)
        await trio.testing.wait_all_tasks_blocked()
        assert session.backend is None
        with pytest.raises(ConsoleError, match="the session has ended") as raised:
            await logins.open(session)
        assert raised.value.status == 503
    other = Sessions(lambda: world.target, "", None, None, SANDBOX)
    with pytest.raises(ConsoleError, match="the console is stopping"):
        await other.open(await other.begin())


async def test_pages_of_one_visitor_leave_room_for_those_of_others(autojump_clock: object) -> None:
    reads, ended = Reads(), []

    async def read(owner: str, seconds: float) -> None:
        async with reads.of(owner):
            await trio.sleep(seconds)
            ended.append((owner, trio.current_time()))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(2 * OWNER_READS_MAX):
            nursery.start_soon(read, "ann", 5)
        await trio.sleep(1)
        nursery.start_soon(read, "bob", 1)
    assert ended[0] == ("bob", began + 2)
    assert [at for owner, at in ended if owner == "ann"] == [began + 5] * OWNER_READS_MAX + [
        began + 10
    ] * OWNER_READS_MAX
    async with trio.open_nursery() as nursery:
        for number in range(READS_MAX + 1):
            nursery.start_soon(read, f"user {number}", 5)
    assert trio.current_time() == began + 20, "all of them are so many at a time"
