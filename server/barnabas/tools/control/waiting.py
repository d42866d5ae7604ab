"""Waiting until a broker is in some state: a topic has records, a group is stable, a group has read everything.

The rule: the caller gives a timeout in real time, whatever the broker's clock shows; the error of a timeout describes
the present state.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from barnabas.tools.seeding.looking import NotThereError

if TYPE_CHECKING:
    from barnabas.tools.seeding.looking import JsonObject, Looking

LOOK_S = 0.005
"""Seconds to wait between two looks."""
TIMEOUT_MS = 10_000


class NotYetError(Exception):
    """The awaited state was not reached in time; the text describes the present one."""


async def until(look: Callable[[], Awaitable[tuple[bool, Any, str]]], timeout_ms: int) -> Any:
    """Look until the state is as expected, and return it.

    `look` returns whether the state is as expected, the state, and its description. Raises NotYetError.
    """
    deadline_s = time.monotonic() + timeout_ms / 1000
    while True:
        is_so, answer, words = await look()
        if is_so:
            return answer
        if time.monotonic() >= deadline_s:
            raise NotYetError(f"{words} after {timeout_ms} ms")
        await trio.to_thread.run_sync(time.sleep, LOOK_S)


async def wait_for_records(
    looking: Looking,
    topic: str,
    count: int,
    *,
    partition: int | None = None,
    committed: bool = True,
    timeout_ms: int = TIMEOUT_MS,
) -> JsonObject:
    """Wait until a topic, or one partition of it, holds at least `count` records. Raises NotYetError.

    Counted records are not read again. A topic that does not exist yet has none.
    """
    counted: dict[int, tuple[int, int]] = {}  # partition -> (records, the offset after them)

    async def look() -> tuple[bool, JsonObject, str]:
        try:
            info = looking.topic(topic)
        except NotThereError:
            counted.clear()
            return count <= 0, {"topic": topic, "records": 0}, f"there is no topic {topic}"
        for partition_info in info["partitions"]:
            index = partition_info["partition"]
            if partition is None or index == partition:
                records, offset = counted.get(index, (0, 0))
                more, end = await looking.count(topic, index, offset, committed=committed)
                counted[index] = (records + more, end)
        total = sum(records for records, _ in counted.values())
        where = topic if partition is None else f"{topic}-{partition}"
        return total >= count, {"topic": topic, "records": total}, f"{where} holds {total} of {count} records"

    answer: JsonObject = await until(look, timeout_ms)
    return answer


async def wait_for_group(
    looking: Looking,
    group: str,
    *,
    state: str = "Stable",
    members: int | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> JsonObject:
    """Wait until a group is in a state, with an exact number of members if it is set. Raises NotYetError."""

    async def look() -> tuple[bool, JsonObject, str]:
        try:
            described = await looking.group(group)
        except NotThereError:
            is_gone = state.lower() == "dead"
            return is_gone, {"group": group, "state": "Dead", "members": []}, f"there is no group {group}"
        is_so = described["state"].lower() == state.lower() and members in (None, len(described["members"]))
        return (
            is_so,
            described,
            f"group {group} is {described['state']} with {len(described['members'])} members",
        )

    answer: JsonObject = await until(look, timeout_ms)
    return answer


async def wait_for_lag(
    looking: Looking,
    group: str,
    *,
    topic: str | None = None,
    lag: int = 0,
    timeout_ms: int = TIMEOUT_MS,
) -> JsonObject:
    """Wait until a group has committed, and for no partition is further behind than `lag` records. Raises NotYetError.

    With a `topic`, every partition of it that holds records counts, also those that the group has never committed for.
    """

    async def look() -> tuple[bool, JsonObject, str]:
        try:
            described = await looking.group(group)
        except NotThereError:
            return False, {}, f"there is no group {group}"
        lags = {
            (offset["topic"], offset["partition"]): offset["lag"]
            for offset in described["offsets"]
            if topic in (None, offset["topic"])
        }
        if topic is not None:
            for partition_info in looking.topic(topic)["partitions"]:
                held = partition_info["high_watermark"] - partition_info["log_start_offset"]
                lags.setdefault((topic, partition_info["partition"]), held)
        behind = {
            f"{name}-{index}": behind_by
            for (name, index), behind_by in lags.items()
            if behind_by is not None and behind_by > lag
        }
        words = f"group {group} is behind by {behind}" if lags else f"group {group} has committed nothing"
        return bool(lags) and not behind, described, words

    answer: JsonObject = await until(look, timeout_ms)
    return answer
