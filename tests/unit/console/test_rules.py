"""Rules of the console, each by itself: fields of a body, rates, ends of sessions, rows, what is passed on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientError, ClientSettings, ConnectionLostError
from barnabas.client.admin import EARLIEST, Admin, OffsetAt
from barnabas.client.administration.words import OPERATIONS
from barnabas.console import backend as backends
from barnabas.console import own_broker, sessions
from barnabas.console.backend import SAMPLE_SECONDS_MIN, Backend
from barnabas.console.base import Call, ConsoleError
from barnabas.console.kept import FRESH_SECONDS, STALE_SECONDS
from barnabas.console.log_lines import LINE_CHARS_MAX, LINES_MAX, Lines
from barnabas.console.reading import bounds_of
from barnabas.console.routes.inside import steer
from barnabas.console.topic_index import TopicIndex, TopicRow
from barnabas.tools.control.routes import broker as control

NOBODY: Any = None


async def test_rate_counts_since_the_look_before_the_last(autojump_clock: object) -> None:
    client: Any = SimpleNamespace()
    backend = Backend(client, NOBODY, ClientSettings(), NOBODY, None, None, NOBODY, "ann")

    async def look(at_s: float, total: int, topic: str = "t") -> float | None:
        await trio.sleep_until(at_s)
        return backend.rate(topic, total)

    assert await look(100.0, 1000) is None
    assert await look(100.0 + SAMPLE_SECONDS_MIN / 4, 2000) is None, "too soon to say"
    assert await look(102.0, 1010) == 5.0
    assert await look(102.5, 1015) == 6.0
    assert await look(104.0, 1050) == 20.0
    assert await look(106.0, 50) == 0.0, "the topic was made anew"
    assert await look(106.0, 7, "u") is None
    assert await look(106.0 + SAMPLE_SECONDS_MIN / 2, 10, "u") == 6.0


async def test_rights_are_asked_for_again_after_a_second(autojump_clock: object) -> None:
    bits, asked = [1 << OPERATIONS.index("alter")], []

    async def ask(*_: Any, **__: Any) -> Any:
        asked.append(trio.current_time())
        return SimpleNamespace(cluster_authorized_operations=bits[0])

    async def any_connection() -> Any:
        return SimpleNamespace(version_of=lambda _: 10, ask=ask)

    client: Any = SimpleNamespace(any_connection=any_connection)
    backend = Backend(client, NOBODY, ClientSettings(), NOBODY, None, None, NOBODY, "ann")
    assert await backend.operations() == {"alter"}
    bits[0] = 0
    await trio.sleep(backends.OPERATIONS_SECONDS / 2)
    assert (await backend.operations(), len(asked)) == ({"alter"}, 1)
    await trio.sleep(backends.OPERATIONS_SECONDS)
    assert await backend.operations() == frozenset()


def test_lines_of_the_log_are_told_once_and_the_newest_are_kept() -> None:
    lines = Lines()
    logger = logging.Logger("a.place")
    logger.addHandler(lines)
    for number in range(LINES_MAX + 5):
        logger.warning("line %d", number)
    told = lines.since(0)
    assert [told[0]["text"], told[-1]["text"]] == ["line 5", f"line {LINES_MAX + 4}"]
    assert lines.since(told[-1]["id"]) == []
    assert lines.since(told[-3]["id"]) == told[-2:]
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("x" * 2 * LINE_CHARS_MAX)
        logger.exception("it is")
    long, short = lines.since(told[-1]["id"])
    assert len(long["text"]) == LINE_CHARS_MAX
    assert (short["text"], short["level"], short["logger"]) == (
        "it is (ValueError: broken)",
        "error",
        "a.place",
    )


def part(replicas: list[int], in_sync: list[int], leader: int) -> Any:
    return SimpleNamespace(
        partition_index=0,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=[],
    )


def described(name: str, *parts: Any, error_code: int = 0) -> Any:
    return SimpleNamespace(
        name=name, error_code=error_code, is_internal=False, partitions=parts, topic_id=bytes(16)
    )


class Described:
    """A connection to a broker that describes topics in pages."""

    versions = (75,)

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def ask(self, request: Any) -> Any:
        """Return a page after the cursor: of the second topic a partition is on each."""
        await trio.lowlevel.checkpoint()
        self.asked.append(request.cursor)
        if request.cursor is None:
            cursor = SimpleNamespace(topic_name="b", partition_index=1)
            topics = [described("a", part([1, 2], [1], 1)), described("b", part([1], [1], 1))]
            return SimpleNamespace(topics=topics, next_cursor=cursor)
        topics = [
            described("b", part([1, 2, 3], [], -1)),
            described("c", part([1], [1], 1)),
            described("x", error_code=3),
        ]
        return SimpleNamespace(topics=topics, next_cursor=None)


async def test_topics_are_read_in_pages_and_again_when_they_are_old(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    connection = Described()

    async def any_connection() -> Described:
        return connection

    client: Any = SimpleNamespace(any_connection=any_connection)
    index = TopicIndex(Admin(client), nursery)
    rows = await index.rows()
    assert rows == [
        TopicRow("a", 1, 2, 1, 0, is_internal=False, leaders=(1,)),
        TopicRow("b", 2, 3, 1, 1, is_internal=False, leaders=(1, -1)),
        TopicRow("c", 1, 1, 0, 0, is_internal=False, leaders=(1,)),
    ]
    assert [page and (page.topic_name, page.partition_index) for page in connection.asked] == [None, ("b", 1)]
    await trio.sleep(FRESH_SECONDS)
    assert await index.rows() is rows
    await trio.sleep(1)
    assert (newer := await index.rows()) is not rows
    assert len(connection.asked) == 4
    await trio.sleep(STALE_SECONDS + 2 * FRESH_SECONDS + 1)
    assert await index.rows() is not newer, "it is too old to be shown"
    index.forget()
    await index.rows()
    assert len(connection.asked) == 8


async def test_topics_that_change_while_they_are_read_are_read_again(nursery: trio.Nursery) -> None:
    connection = Described()
    describe = connection.ask

    async def ask(request: Any) -> Any:
        if len(connection.asked) == 1:
            index.forget()  # somebody makes a topic
        return await describe(request)

    connection.ask = ask  # type: ignore[method-assign]

    async def any_connection() -> Described:
        return connection

    client: Any = SimpleNamespace(any_connection=any_connection)
    index = TopicIndex(Admin(client), nursery)
    await index.rows()
    assert len(connection.asked) == 4


async def test_partitions_without_ends_are_omitted_or_an_error_alone() -> None:
    lost = ConnectionLostError("nobody leads it")
    ends = {
        ("t", 0): (OffsetAt(1, -1, 0), OffsetAt(9, -1, 0)),
        ("t", 1): (lost, OffsetAt(9, -1, 0)),
        ("t", 2): (OffsetAt(1, -1, 0), lost),
    }

    async def offsets(places: dict[Any, int], **_: bool) -> dict[Any, Any]:
        return {place: ends[place][which != EARLIEST] for place, which in places.items()}

    backend: Any = SimpleNamespace(admin=SimpleNamespace(offsets=offsets))
    bounds = await bounds_of(backend, ends)
    assert (bounds.first, bounds.next) == ({("t", 0): 1}, {("t", 0): 9})
    for place in (("t", 1), ("t", 2)):
        with pytest.raises(ClientError) as raised:
            await bounds_of(backend, [place])
        assert raised.value is lost


async def test_control_request_has_a_body_where_one_was_given() -> None:
    asked: list[tuple[Any, ...]] = []

    async def control(*args: Any) -> tuple[int, Any]:
        asked.append(args)
        return (404, {"error": "there is none"}) if args[1].endswith("/x") else (200, {"done": True})

    backend: Any = SimpleNamespace(live=SimpleNamespace(control=control, views={"control"}))

    async def steered(rest: str, **body: Any) -> Any:
        return await steer(Call(backend, {"rest": rest}, {}, body))

    assert await steered("clock") == {"done": True}
    await steered("faults", method="PUT", rules=["a"])
    await steered("snapshots/one/restore", method="POST", confirm="snapshots/one/restore")
    assert asked == [
        ("GET", "/v1/clock", {}, None),
        ("PUT", "/v1/faults", {}, {"rules": ["a"]}),
        ("POST", "/v1/snapshots/one/restore", {}, None),
    ]
    for rest, status in (("snapshots/one/restore", 409), ("faults/x", 404), ("elsewhere", 404)):
        with pytest.raises(ConsoleError) as refused:
            await steered(rest, method="POST")
        assert refused.value.status == status


async def test_a_session_keeps_the_client_of_where_the_broker_is_now() -> None:
    ended: list[int] = []

    @asynccontextmanager
    async def opened(target: Any, *_: Any) -> AsyncIterator[Any]:
        try:
            yield SimpleNamespace(port=target.bootstrap)
        finally:
            ended.append(target.bootstrap)

    port = [1]
    where: Any = lambda: SimpleNamespace(bootstrap=port[0], mechanisms=(), settings=ClientSettings)  # noqa: E731
    logins = sessions.Sessions(where, "", None, None, NOBODY, open_backend=opened)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logins.run)
        await trio.testing.wait_all_tasks_blocked()
        session = await logins.begin()
        first = await logins.open(session)
        assert await logins.open(session) is first
        port[0] = 2
        second: Any = await logins.open(session)
        await trio.testing.wait_all_tasks_blocked()
        assert (second.port, ended) == (2, [1])
        assert await logins.open(session) is second, "the end of the first does not count for it"
        logins.end(session)
        await trio.testing.wait_all_tasks_blocked()
        assert (ended, session.backend) == ([1, 2], None)
        nursery.cancel_scope.cancel()


def call(**body: Any) -> Call:
    return Call(NOBODY, {}, {}, body)


@pytest.mark.parametrize("body", [{}, {"x": None}])
def test_null_is_a_field_that_is_not_there(body: dict[str, Any]) -> None:
    assert call(**body).field("x", int, -1) == -1
    assert call(**body).field("x", str, None) is None
    with pytest.raises(ConsoleError, match="the body lacks x"):
        call(**body).field("x", str)


@pytest.mark.parametrize(("address", "shown"), [(("10.0.0.1", 9), "10.0.0.1:9"), (("::1", 9), "[::1]:9")])
@pytest.mark.parametrize("described", [own_broker._described, control._described])
def test_a_connection_is_shown_with_the_address_of_its_peer(
    address: tuple[str, int], shown: str, described: Any
) -> None:
    request = SimpleNamespace(client_id="app")
    info = SimpleNamespace(
        connection_id=7, listener="L", security_protocol="SSL", peer_address=address, principal="User:ann",
        request=request, client_software_name="librdkafka", client_software_version="2.2.0", muted_ms=5,
    )  # fmt: skip
    connection: Any = SimpleNamespace(info=info, answering="Fetch")
    row = described(connection)
    common = {"id": 7, "listener": "L", "peer": shown, "principal": "User:ann", "client_id": "app"}
    assert row.items() >= {**common, "software": "librdkafka 2.2.0", "answering": "Fetch"}.items()
    info.request, info.client_software_name, info.client_software_version = None, "", ""
    row = described(connection)
    assert (row["client_id"], row["software"]) == (None, "")
