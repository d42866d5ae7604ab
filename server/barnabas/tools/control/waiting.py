"""Waiting until a broker is in some state: a topic has records, a group is stable, a group has read everything.

The rule: whoever waits says for how long, in real time whatever the broker's clock shows; when the time is over, the error
says what there was instead.
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
    """The awaited state has not come in time; the text says what there is."""


async def until(look: Callable[[], Awaitable[tuple[bool, Any, str]]], timeout_ms: int) -> Any:
    """Look until it is as wanted, and return what there is.

    `look` returns whether it is, what there is, and that in words. Raises NotYetError.
    """
    deadline_s = time.monotonic() + timeout_ms / 1000
    while True:
        is_so, found, words = await look()
        if is_so:
            return found
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

    What was counted is not read again. A topic that does not exist yet holds none.
    """
    counted: dict[int, tuple[int, int]] = {}  # partition -> (records, the offset after them)

    async def look() -> tuple[bool, JsonObject, str]:
        try:
            info = looking.topic(topic)
        except NotThereError:
            counted.clear()
            return count <= 0, {"topic": topic, "records": 0}, f"there is no topic {topic}"
        for one in info["partitions"]:
            index = one["partition"]
            if partition is None or index == partition:
                known, offset = counted.get(index, (0, 0))
                more, end = await looking.count(topic, index, offset, committed=committed)
                counted[index] = (known + more, end)
        total = sum(known for known, _ in counted.values())
        where = topic if partition is None else f"{topic}-{partition}"
        return total >= count, {"topic": topic, "records": total}, f"{where} holds {total} of {count} records"

    found: JsonObject = await until(look, timeout_ms)
    return found


async def wait_for_group(
    looking: Looking,
    group: str,
    *,
    state: str = "Stable",
    members: int | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> JsonObject:
    """Wait until a group is in a state, with just so many members if a number is given. Raises NotYetError."""

    async def look() -> tuple[bool, JsonObject, str]:
        try:
            found = await looking.group(group)
        except NotThereError:
            is_gone = state.lower() == "dead"
            return is_gone, {"group": group, "state": "Dead", "members": []}, f"there is no group {group}"
        is_so = found["state"].lower() == state.lower() and members in (None, len(found["members"]))
        return is_so, found, f"group {group} is {found['state']} with {len(found['members'])} members"

    found: JsonObject = await until(look, timeout_ms)
    return found


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
            found = await looking.group(group)
        except NotThereError:
            return False, {}, f"there is no group {group}"
        lags = {
            (one["topic"], one["partition"]): one["lag"]
            for one in found["offsets"]
            if topic in (None, one["topic"])
        }
        if topic is not None:
            for one in looking.topic(topic)["partitions"]:
                held = one["high_watermark"] - one["log_start_offset"]
                lags.setdefault((topic, one["partition"]), held)
        behind = {
            f"{name}-{index}": one for (name, index), one in lags.items() if one is not None and one > lag
        }
        words = f"group {group} is behind by {behind}" if lags else f"group {group} has committed nothing"
        return bool(lags) and not behind, found, words

    found: JsonObject = await until(look, timeout_ms)
    return found
