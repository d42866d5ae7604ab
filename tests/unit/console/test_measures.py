"""Measures of topics, tails of records, families of metrics, patterns: what the console makes of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ConnectionLostError, open_client
from barnabas.client.admin import EARLIEST, LATEST, Acl, Admin, OffsetAt
from barnabas.console import measuring
from barnabas.console.log_lines import Lines
from barnabas.console.own_broker import OwnBroker
from barnabas.console.tailing import BEHIND_MAX, skip
from barnabas.console.topic_index import TopicIndex, TopicRow
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from tests.support.console import LOGIN, PASSWORD, console_beside

NOBODY: Any = None


class World:
    """Topics of which some grow by 10 records a second, and what is asked about them."""

    def __init__(self, *growing: str, tells_bytes: bool = True) -> None:
        self.growing = set(growing)
        self.tells_bytes = tells_bytes
        self.asked: list[tuple[str, list[str]]] = []

    async def sums_of(self, _: Any, rows: Sequence[TopicRow], columns: Any) -> measuring.Sums:
        """Stand in for `measuring.sums_of`."""
        names = [row.name for row in rows]
        (column,) = columns
        self.asked.append((column, names))
        now = int(trio.current_time() * 10)
        ends = {name: now if name in self.growing else 7 for name in names}
        sizes = {name: end * 100 for name, end in ends.items()} if self.tells_bytes else {}
        return measuring.Sums(dict.fromkeys(names, 7), sizes, ends)

    async def rows(self) -> list[TopicRow]:
        """Stand in for an index of topics."""
        return [
            TopicRow(name, 1, 1, 0, 0, is_internal=False, leaders=(1,)) for name in ("busy", "idle", "late")
        ]


async def test_a_rate_of_all_topics_asks_those_for_offsets_that_grow(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World("busy")
    measured = measuring.AllMeasured(NOBODY, world, nursery, sums_of=world.sums_of)  # type: ignore[arg-type]
    assert await measured.get("records") == dict.fromkeys(("busy", "idle", "late"), 7)
    assert (await measured.get("bytes"))["idle"] == 700
    world.asked.clear()
    began = trio.current_time()
    assert await measured.get("rate") == {"busy": pytest.approx(10, abs=1), "idle": 0, "late": 0}
    waited_s = measuring.GROWTH_SECONDS + measuring.RATE_SECONDS_MIN
    assert trio.current_time() == pytest.approx(began + waited_s, abs=0.01)
    everybody = ["busy", "idle", "late"]
    assert world.asked == [("bytes", everybody)] * 2 + [("rate", ["busy"])] * 2

    world.asked.clear()
    measured.forget("rate")
    await trio.sleep(4)
    later = trio.current_time()
    assert await measured.get("rate") == {"busy": pytest.approx(10, abs=1), "idle": 0, "late": 0}
    assert trio.current_time() == pytest.approx(later, abs=0.01), "what was known is enough"
    assert world.asked == [("bytes", everybody), ("rate", ["busy"])]

    world.growing = {"late"}
    measured.forget("rate")
    await trio.sleep(4)
    assert await measured.get("rate") == {"busy": 0, "idle": 0, "late": pytest.approx(10, abs=1)}

    world.asked.clear()
    measured.forget("rate")
    await trio.sleep(measuring.RATE_SECONDS_MAX + 1)
    await measured.get("rate")
    assert [column for column, _ in world.asked] == ["bytes", "bytes", "rate", "rate"], "all is too old"


@pytest.mark.parametrize("column", ["bytes", "rate"])
async def test_rate_after_a_failed_look_ignores_the_time_before(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, column: str
) -> None:
    world = World("busy")
    fails: list[str] = []

    async def sums_of(admin: Any, rows: Any, columns: Any) -> measuring.Sums:
        if fails == list(columns):
            raise ConnectionLostError("away")
        return await world.sums_of(admin, rows, columns)

    measured = measuring.AllMeasured(NOBODY, world, nursery, sums_of=sums_of)  # type: ignore[arg-type]
    as_it_grows = {"busy": pytest.approx(10, abs=1), "idle": 0, "late": 0}
    assert await measured.read_rates() == as_it_grows
    for seconds in (60, measuring.RATE_SECONDS_MAX + 1):
        await trio.sleep(seconds)
        fails.append(column)
        with pytest.raises(ConnectionLostError):
            await measured.read_rates()
        fails.clear()
        await trio.sleep(2)
        assert await measured.read_rates() == as_it_grows
        await trio.sleep(2)
        assert await measured.read_rates() == as_it_grows


def reachable(*brokers: int) -> Any:
    """Make an admin client that can connect to these brokers alone."""

    async def connect(broker: int) -> None:
        if broker not in brokers:
            raise ConnectionLostError(f"broker {broker}: nothing listens there")

    return SimpleNamespace(client=SimpleNamespace(broker=connect))


async def test_partitions_of_unreachable_leaders_are_an_error() -> None:
    with pytest.raises(ConnectionLostError, match="broker 2"):
        await measuring.bounds_and_sizes(reachable(1), {2: {"t": [0]}}, [])


async def test_silent_leader_does_not_delay_a_reachable_one(autojump_clock: trio.testing.MockClock) -> None:
    async def connect(broker: int) -> None:
        if broker == 1:
            await trio.sleep_forever()

    admin: Any = SimpleNamespace(client=SimpleNamespace(broker=connect))
    with trio.fail_after(1):
        measures = await measuring.bounds_and_sizes(admin, {1: {"t": [0]}, 2: {"t": [1]}}, [])
    assert measures == measuring.Measures({}, {}, {})


async def test_one_reachable_leader_of_several_is_enough() -> None:
    nothing = measuring.Measures({}, {}, {})
    assert await measuring.bounds_and_sizes(reachable(2), {1: {"t": [0]}, 2: {"t": [1]}}, []) == nothing


async def test_a_leader_that_has_changed_is_looked_for() -> None:
    admin = SimpleNamespace(client=SimpleNamespace(broker=None), asked=[])

    async def ask(request: Any, version: int) -> Any:
        topics = [(row.name, [part.partition_index for part in row.partitions]) for row in request.topics]
        assert topics == [("t", [0, 2])]
        (time_ms,) = {part.timestamp for topic in request.topics for part in topic.partitions}
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse("t", [
            ListOffsetsResponse.ListOffsetsPartitionResponse(0, offset=40 + time_ms),
            ListOffsetsResponse.ListOffsetsPartitionResponse(2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ])])  # fmt: skip

    async def broker(number: int) -> Any:
        if number == 2:
            raise ConnectionLostError("broker 2 is down")
        return SimpleNamespace(ask=ask, version_of=lambda _: 7)

    async def offsets(times: dict[Any, int]) -> dict[Any, Any]:
        admin.asked.append(times)
        return {place: OffsetAt(100, -1, -1) if place[1] == 2 else ConnectionLostError("") for place in times}

    admin.client.broker, admin.offsets = broker, offsets
    rows = [TopicRow("t", 4, 1, 0, 1, is_internal=False, leaders=(1, 2, 1, -1))]
    sums = await measuring.sums_of(admin, rows, columns=["records", "rate"])  # type: ignore[arg-type]
    assert sums == measuring.Sums({"t": 1}, {}, {"t": 139})
    again = {(place, time_ms) for times in admin.asked for place, time_ms in times.items()}
    assert again == {(("t", number), time_ms) for number in (1, 2) for time_ms in (EARLIEST, LATEST)}


async def test_a_tail_that_is_far_behind_goes_on_at_the_end() -> None:
    lags = {0: BEHIND_MAX, 1: BEHIND_MAX + 1, 2: None, 3: 5_000}
    sought: dict[int, int] = {}

    async def position(place: Any) -> int:
        return 1_000

    consumer: Any = SimpleNamespace(
        lag=lambda place: lags[place.partition], position=position,
        seek=lambda place, offset: sought.setdefault(place.partition, offset),
    )  # fmt: skip
    skipped = await skip(consumer, [("t", number) for number in lags])
    assert sought == {1: 1_000 + BEHIND_MAX + 1, 3: 6_000}
    assert skipped == BEHIND_MAX + 1 + 5_000


async def test_broker_from_inside_tells_what_its_protocol_tells(tmp_path: Path) -> None:
    async with console_beside(tmp_path / "data") as console, open_client(console.bootstrap) as client:
        admin = Admin(client)
        await console.make_topic("empty", 2)
        await console.make_topic("busy", 3)
        await console.produce("busy", b"a", b"b", b"c", partition=1)
        await console.produce("busy", b"d", partition=0)
        await admin.delete_records({("busy", 1): 2})
        async with trio.open_nursery() as nursery:
            index = TopicIndex(admin, nursery)
            rows = await index.rows()
        own = OwnBroker(Lines(), console.host)
        assert own.sums(rows) is None, "it has no broker yet"
        assert console.host.broker is not None
        own.attach(console.host.broker)
        sums = own.sums([*rows, rows[0]._replace(name="deleted")])
        assert sums == await measuring.sums_of(admin, rows)
        assert (sums.records, sums.ends) == ({"busy": 2, "empty": 0}, {"busy": 4, "empty": 0})
        console.host.stop()
        assert own.sums(rows) is None, "it stops"


@pytest.mark.parametrize(("user", "tells_bytes"), [("operator", True), ("ann", False)])
async def test_bytes_of_topics_need_the_right_to_describe_the_cluster(
    tmp_path: Path, user: str, tells_bytes: bool
) -> None:
    async with console_beside(tmp_path, LOGIN) as console, open_client(console.bootstrap) as client:
        await console.make_topic("seen", 1)
        await console.produce("seen", b"x")
        acls = [Acl("topic", "seen", "literal", "User:ann", "*", "describe", "allow")]
        await Admin(client).create_acls(acls)
        visitor = await console.visitor(user=user, password=PASSWORD)
        for sort in measuring.COLUMNS:
            page = await visitor.get("/api/topics", sort=sort)
            (row,) = page["rows"]
            assert row["records"] == 1
            assert (row["bytes"] is not None) == tells_bytes
