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
from barnabas.client.admin import EARLIEST, OffsetAt
from barnabas.client.administration.access import OPERATIONS
from barnabas.client.administration.transactions import ListedTransaction, TransactionInfo
from barnabas.client.settings import SaslCredentials
from barnabas.commands.resetting import Target
from barnabas.console import backend as backends
from barnabas.console import kept, own_broker, sessions
from barnabas.console.backend import SAMPLE_SECONDS_MIN, Backend
from barnabas.console.base import Call, ConsoleError
from barnabas.console.command import COMMAND
from barnabas.console.kept import FRESH_SECONDS, STALE_SECONDS
from barnabas.console.log_lines import LINE_CHARS_MAX, LINES_MAX, Lines
from barnabas.console.own_broker import OwnBroker
from barnabas.console.reading import bounds_of
from barnabas.console.routes import topics as topic_routes
from barnabas.console.routes.groups import _target, _topics
from barnabas.console.routes.inside import steer
from barnabas.console.routes.transactions import _row
from barnabas.console.sessions import IDLE_SECONDS_MAX, LIFE_SECONDS_MAX, Session
from barnabas.console.topic_index import DESCRIBE_TOPIC_PARTITIONS, TopicIndex, TopicRow

NOBODY: Any = None


def call(**body: Any) -> Call:
    return Call(NOBODY, {}, {}, body)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"), [(str, ""), (int, 0), (int, -1), (bool, False), (list, []), (dict, {"a": None})]
)
def test_a_field_of_a_body_is_of_its_type(kind: type, value: Any) -> None:
    assert call(x=value).field("x", kind) == value
    assert call(x=value).field("x", kind, "default") == value


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        (str, 1, "a text"),
        (int, "1", "a whole number"),
        (int, True, "a whole number"),
        (int, 1.0, "a whole number"),
        (bool, 1, "true or false"),
        (list, {}, "an array"),
    ],
)
def test_a_field_of_another_type_is_told(kind: type, value: Any, named: str) -> None:
    for default in ((), (None,)):
        with pytest.raises(ConsoleError, match=f"x: {named} expected") as refused:
            call(x=value).field("x", kind, *default)
        assert refused.value.status == 400


@pytest.mark.parametrize("body", [{}, {"x": None}])
def test_null_is_a_field_that_is_not_there(body: dict[str, Any]) -> None:
    assert call(**body).field("x", int, -1) == -1
    assert call(**body).field("x", str, None) is None
    with pytest.raises(ConsoleError, match="the body lacks x"):
        call(**body).field("x", str)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_rate_is_what_came_since_the_look_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(backends, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client: Any = SimpleNamespace()
    backend = Backend(client, NOBODY, ClientSettings(), NOBODY, None, None, NOBODY, "ann")

    def look(at_s: float, total: int, topic: str = "t") -> float | None:
        now[0] = at_s
        return backend.rate(topic, total)

    assert look(100.0, 1000) is None
    assert look(100.0 + SAMPLE_SECONDS_MIN / 4, 2000) is None, "too soon to say"
    assert look(102.0, 1010) == 5.0
    assert look(102.5, 1015) == 6.0
    assert look(104.0, 1050) == 20.0
    assert look(106.0, 50) == 0.0, "the topic was made anew"
    assert look(106.0, 7, "u") is None
    assert look(106.0 + SAMPLE_SECONDS_MIN / 2, 10, "u") == 6.0


async def test_rights_are_asked_for_anew_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, bits, asked = [0.0], [1 << OPERATIONS.index("alter")], []
    monkeypatch.setattr(backends, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask(*_: Any, **__: Any) -> Any:
        asked.append(now[0])
        return SimpleNamespace(cluster_authorized_operations=bits[0])

    async def any_connection() -> Any:
        return SimpleNamespace(version_of=lambda _: 10, ask=ask)

    client: Any = SimpleNamespace(any_connection=any_connection)
    backend = Backend(client, NOBODY, ClientSettings(), NOBODY, None, None, NOBODY, "ann")
    assert await backend.operations() == {"alter"}
    bits[0] = 0
    now[0] = backends.OPERATIONS_SECONDS / 2
    assert (await backend.operations(), asked) == ({"alter"}, [0.0])
    now[0] = backends.OPERATIONS_SECONDS + 0.1
    assert await backend.operations() == frozenset()


def test_connections_have_the_rate_at_which_their_requests_are_numbered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [10.0]
    monkeypatch.setattr(own_broker, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(own_broker, "_described", lambda one: {"id": one.id})
    request = SimpleNamespace(correlation_id=100)
    connections = [
        SimpleNamespace(id=1, info=SimpleNamespace(request=request)),
        SimpleNamespace(id=2, info=SimpleNamespace(request=None)),
    ]
    own = OwnBroker(Lines())
    running: Any = SimpleNamespace(connections=connections)
    own.attach(running)

    def rates(at_s: float, number: int) -> list[float | None]:
        now[0], request.correlation_id = at_s, number
        return [row.get("rate") for row in own.connections()]

    assert rates(10.0, 100) == [None, None]
    assert rates(12.0, 150) == [25.0, 0.0]
    assert rates(12.25, 160) == [None, None], "too soon to say"
    assert rates(14.25, 150) == [None, 0.0], "another client has the number"
    assert rates(14.75, 160) == [20.0, 0.0], "half a second is enough"
    own.attach(running)
    assert rates(16.1, 200) == [None, None], "of a broker that has restarted nothing is known"


def test_lines_of_the_log_are_told_once_and_the_newest_are_kept() -> None:
    lines = Lines()
    logger = logging.Logger("a.place")
    logger.addHandler(lines)
    for number in range(LINES_MAX + 5):
        logger.warning("line %d", number)
    found = lines.since(0)
    assert [found[0]["text"], found[-1]["text"]] == ["line 5", f"line {LINES_MAX + 4}"]
    assert lines.since(found[-1]["id"]) == []
    assert lines.since(found[-3]["id"]) == found[-2:]
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("x" * 2 * LINE_CHARS_MAX)
        logger.exception("it is")
    long, short = lines.since(found[-1]["id"])
    assert len(long["text"]) == LINE_CHARS_MAX
    assert (short["text"], short["level"], short["logger"]) == (
        "it is (ValueError: broken)",
        "error",
        "a.place",
    )


OPEN_INFO = TransactionInfo("id", 7, 3, "Ongoing", 60_000, 1_000, 1, (("t", 0), ("u", 2)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "started_at_ms", "age_ms"),
    [
        ("Ongoing", 1_000, 500),
        ("PrepareAbort", 1_500, 0),
        ("Ongoing", 2_000, 0),
        ("Ongoing", 0, 1_500),
        ("Ongoing", -1, None),
        ("Empty", -1, None),
        ("CompleteCommit", 1_000, None),
    ],
)
def test_a_transaction_has_an_age_while_it_is_open(
    state: str, started_at_ms: int, age_ms: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.console.routes.transactions.time.time_ns", lambda: 1_500 * 1_000_000)
    info = TransactionInfo("id", 7, 3, state, 60_000, started_at_ms, 1, OPEN_INFO.partitions)
    row = _row(ListedTransaction("id", 7, "Ongoing", 1), info)
    assert (row["age_ms"], row["state"], row["partitions"]) == (age_ms, state, ["t-0", "u-2"])
    assert (row["epoch"], row["timeout_ms"]) == (3, 60_000)
    assert _row(ListedTransaction("id", 7, "Ongoing", 1), None)["state"] == "Ongoing"


def part(replicas: list[int], in_sync: list[int], leader: int) -> Any:
    return SimpleNamespace(replica_nodes=replicas, isr_nodes=in_sync, leader_id=leader)


def described(name: str, *parts: Any, error_code: int = 0) -> Any:
    return SimpleNamespace(name=name, error_code=error_code, is_internal=False, partitions=parts)


class Described:
    """A connection to a broker that describes topics in pages."""

    versions = (DESCRIBE_TOPIC_PARTITIONS,)

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
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    now = [0.0]
    monkeypatch.setattr(kept, "time", SimpleNamespace(monotonic=lambda: now[0]))
    connection = Described()

    async def any_connection() -> Described:
        return connection

    admin: Any = SimpleNamespace(client=SimpleNamespace(any_connection=any_connection))
    index = TopicIndex(admin, nursery)
    rows = await index.rows()
    assert rows == [
        TopicRow("a", 1, 2, 1, 0, is_internal=False, leaders=(1,)),
        TopicRow("b", 2, 3, 1, 1, is_internal=False, leaders=(1, -1)),
        TopicRow("c", 1, 1, 0, 0, is_internal=False, leaders=(1,)),
    ]
    assert [one and (one.topic_name, one.partition_index) for one in connection.asked] == [None, ("b", 1)]
    now[0] = FRESH_SECONDS
    assert await index.rows() is rows
    now[0] += 1
    assert await index.rows() is rows, "it is read again beside"
    await trio.testing.wait_all_tasks_blocked()
    assert len(connection.asked) == 4
    assert (newer := await index.rows()) is not rows
    now[0] += STALE_SECONDS + 2 * FRESH_SECONDS + 1
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

    admin: Any = SimpleNamespace(client=SimpleNamespace(any_connection=any_connection))
    index = TopicIndex(admin, nursery)
    await index.rows()
    assert len(connection.asked) == 4


@pytest.mark.parametrize(
    ("query", "names"), [({}, ["ok", "under", "off"]), ({"unhealthy": "true"}, ["under", "off"]),
                         ({"internal": "true"}, ["ok", "under", "off", "__own"])]
)  # fmt: skip
async def test_topics_that_lack_replicas_or_leaders_are_unhealthy(
    query: dict[str, str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows() -> list[TopicRow]:
        return [
            TopicRow("ok", 1, 1, 0, 0, is_internal=False),
            TopicRow("under", 1, 2, 1, 0, is_internal=False),
            TopicRow("off", 1, 1, 0, 1, is_internal=False),
            TopicRow("__own", 1, 1, 0, 0, is_internal=True),
        ]

    async def measure(_: Call, rows: list[TopicRow]) -> dict[str, Any]:
        return {"under": {"records": 3, "bytes": 4, "rate": None}}

    monkeypatch.setattr(topic_routes, "measure", measure)
    backend: Any = SimpleNamespace(topics=SimpleNamespace(rows=rows))
    found: Any = await topic_routes.list_topics(Call(backend, {}, query))
    assert sorted(row["name"] for row in found["rows"]) == sorted(names)
    records = {row["name"]: row["records"] for row in found["rows"]}
    assert records["under"] == 3
    assert records["off"] is None


def test_a_reset_names_topics_or_partitions() -> None:
    assert _topics(call()) == []
    assert _topics(call(topics=["t", "t:3", "a:b", "a:b:0", "t:"])) == [
        ("t", None), ("t", 3), ("a:b", None), ("a:b", 0), ("t:", None),
    ]  # fmt: skip
    for wrong in ([""], [3], ["t", None]):
        with pytest.raises(ConsoleError, match="an array of TOPIC or TOPIC:PARTITION"):
            _topics(call(topics=wrong))


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"to": "earliest"}, Target(time_ms=-2)),
        ({"to": "latest", "value": None}, Target(time_ms=-1)),
        ({"to": "offset", "value": 0}, Target(offset=0)),
        ({"to": "time", "value": 5}, Target(time_ms=5)),
        ({"to": "shift", "value": -5}, Target(shift=-5)),
    ],
)
def test_a_reset_has_a_target(body: dict[str, Any], target: Target) -> None:
    assert _target(call(**body)) == target


@pytest.mark.parametrize(
    "body", [{}, {"to": "end"}, {"to": "offset"}, {"to": "offset", "value": -1}, {"to": "time", "value": -1}]
)
def test_a_reset_without_a_target_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ConsoleError):
        _target(call(**body))


async def test_partitions_whose_ends_are_not_known_are_left_out_and_alone_they_are_an_error() -> None:
    lost = ConnectionLostError("nobody leads it")
    ends = {
        ("t", 0): (OffsetAt(1, -1, 0), OffsetAt(9, -1, 0)),
        ("t", 1): (lost, OffsetAt(9, -1, 0)),
        ("t", 2): (OffsetAt(1, -1, 0), lost),
    }

    async def offsets(wanted: dict[Any, int], **_: bool) -> dict[Any, Any]:
        return {place: ends[place][which != EARLIEST] for place, which in wanted.items()}

    backend: Any = SimpleNamespace(admin=SimpleNamespace(offsets=offsets))
    found = await bounds_of(backend, ends)
    assert (found.first, found.next) == ({("t", 0): 1}, {("t", 0): 9})
    for place in (("t", 1), ("t", 2)):
        with pytest.raises(ClientError) as raised:
            await bounds_of(backend, [place])
        assert raised.value is lost


# --- what is passed on ------------------------------------------------------------------------------------------------


async def test_a_request_of_the_control_api_has_a_body_where_it_was_given_one() -> None:
    asked: list[tuple[Any, ...]] = []

    async def control(*given: Any) -> tuple[int, Any]:
        asked.append(given)
        return (404, {"error": "there is none"}) if given[1].endswith("/x") else (200, {"done": True})

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


# --- sessions, options ------------------------------------------------------------------------------------------------


async def test_a_session_ends_when_nobody_uses_it_and_after_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    session = Session(NOBODY, "", ClientSettings())
    await trio.sleep(IDLE_SECONDS_MAX)
    assert not session.is_over
    await trio.sleep(1)
    assert session.is_over
    session.requests.add(trio.CancelScope())
    assert not session.is_over, "it is answered something that takes long"
    await trio.sleep(LIFE_SECONDS_MAX)
    assert session.is_over
    session.requests.clear()
    session.used_at = trio.current_time()
    assert session.is_over, "however much it is used"


async def test_a_session_keeps_the_client_of_where_the_broker_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    @asynccontextmanager
    async def opened(target: Any, *_: Any) -> AsyncIterator[Any]:
        try:
            yield SimpleNamespace(port=target.bootstrap)
        finally:
            ended.append(target.bootstrap)

    monkeypatch.setattr(sessions, "opened", opened)
    port = [1]
    where: Any = lambda: SimpleNamespace(bootstrap=port[0], mechanisms=(), settings=ClientSettings)  # noqa: E731
    found = sessions.Sessions(where, "", None, None, NOBODY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.run)
        await trio.testing.wait_all_tasks_blocked()
        session = await found.begin()
        first = await found.open(session)
        assert await found.open(session) is first
        port[0] = 2
        second: Any = await found.open(session)
        await trio.testing.wait_all_tasks_blocked()
        assert (second.port, ended) == (2, [1])
        assert await found.open(session) is second, "the end of the first does not count for it"
        found.end(session)
        await trio.testing.wait_all_tasks_blocked()
        assert (ended, session.backend) == ([1, 2], None)
        nursery.cancel_scope.cancel()


def test_the_registry_is_told_of_who_has_logged_in() -> None:
    at: Any = SimpleNamespace(client=tuple, client_of=lambda *given: given)
    found = sessions.Sessions(NOBODY, "", None, at, NOBODY)
    ann = ClientSettings(sasl=SaslCredentials("PLAIN", "ann", "secret"))
    for user, settings, given in (
        ("ann", ann, ("ann", "secret")),
        ("", ann, ()),
        ("ann", ClientSettings(), ()),
    ):
        session: Any = SimpleNamespace(user=user, settings=settings)
        assert found._registry_client(session) == given
    without = sessions.Sessions(NOBODY, "", None, None, NOBODY)
    assert without._registry_client(NOBODY) is None


def test_the_options_of_the_console() -> None:
    found = COMMAND.make_context("console", []).params
    assert (found["registry"], found["client_config"], found["properties"]) == (None, None, ())
    assert (found["login"], found["token_file"], found["origins"]) == ((), None, ())
    assert (found["listen"], found["listen_cert"], found["log_level"]) == ("127.0.0.1:9080", None, "warning")
    given = (
        "--registry http://r -X a=b --property c=d --login PLAIN --token-file t --origin o --log-level info "
        "--client-config f --listen-cert c --listen-key k"
    )
    found = COMMAND.make_context("console", given.split()).params
    assert (found["registry"], found["client_config"], found["properties"]) == (
        "http://r",
        "f",
        ("a=b", "c=d"),
    )
    assert (found["login"], found["token_file"], found["origins"]) == (("PLAIN",), "t", ("o",))
    assert (found["log_level"], found["listen_cert"], found["listen_key"]) == ("info", "c", "k")
