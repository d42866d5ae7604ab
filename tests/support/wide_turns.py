"""Send requests with as many entries as allowed to every API, and count the lines of the longest turn.

    PYTHONPATH=server:. python -m tests.support.wide_turns [--verbose] [API ...]

Entries, the limit of lines in a turn, and the loop's budget are the same fraction of their real sizes, so a loop of two
lines for each entry that does not yield is detected. Prints one JSON object: by API the worst turn and its limit. It is a
separate process, as `loop_turns`. It takes time for each entry: by day requests have fewer entries, and only a third of
the APIs are tested, another third each day.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator

import trio

from barnabas.broker import assembly
from barnabas.serving.apis import Api
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.release import KAFKA_4
from compat.hostile.messages import Path
from tests.support.brokers import running
from tests.support.effort import EFFORT, daily
from tests.support.loop_meter import SCALE, SCALED_LINES_MAX
from tests.support.loop_turns import METER, SETTINGS, Driver
from tests.support.wide_requests import EMPTY, SAME, TAGS, UNKNOWN, Names, places, shape, wide
from tests.support.worst_inputs import Case

ENTRIES = 250_000 // SCALE
"""The default of max.request.entries is 250,000."""
LINES_PER_ENTRY = SCALED_LINES_MAX // ENTRIES
FEWER_ENTRIES = 2_000
"""Entries of most requests by day, with turns of up to 4,000 lines."""
ENTRIES_BY_API = {
    "AddPartitionsToTxn": 6_500,
    "AlterConfigs": ENTRIES,
    "CreatePartitions": 3_000,
    "CreateTopics": 3_000,
    "DescribeShareGroupOffsets": 3_000,
    "Fetch": 6_000,
    "IncrementalAlterConfigs": ENTRIES,
    "LeaveGroup": ENTRIES,
    "OffsetCommit": 3_500,
    "Produce": 3_000,
    "ShareGroupHeartbeat": 3_000,
    "TxnOffsetCommit": 3_500,
}
"""Entries by day of APIs that need more than 4,000 lines in a turn for a batch, or up to a limit of Kafka's."""
FEW_PARTITIONS = {"share.coordinator.state.topic.num.partitions": "4"}
"""The first request that needs an internal topic creates it, at a cost per partition and not per entry."""
REFUSING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:nobody",
}


def entries_of(name: str) -> int:
    """Return the number of entries in requests of an API."""
    return ENTRIES if EFFORT > 1 else ENTRIES_BY_API.get(name, FEWER_ENTRIES)


def names_of_the_day() -> list[str]:
    """Return the names of the APIs to test by default: a third, another one each day; with more effort all."""
    return daily(sorted(api.name for api in KAFKA_4.apis.values() if not api.member_only), 3)


def versions(api: Api) -> Iterator[int]:
    """Yield the first and the last version; with more effort all with another request layout than the previous one."""
    for version in range(api.min_version, api.max_version + 1):
        is_new = version == api.min_version or api.decoders[version] is not api.decoders[version - 1]
        if version == api.max_version or (is_new and (EFFORT > 1 or version == api.min_version)):
            yield version


def is_repeated(api: Api, version: int, path: Path) -> bool:
    """Return whether the last version has the same array with the same fields; with more effort False, to send both."""
    if EFFORT > 1 or version == api.max_version:
        return False
    return path == TAGS or shape(api.name, version, path) == shape(api.name, api.max_version, path)


def cases(api: Api, kinds: tuple[Names, ...]) -> Iterator[Case]:
    """Yield the requests of an API; equal requests, as of arrays without names, are sent once.

    An array with another layout in the first version uses another decoder, and then the same code: it is sent with the
    first kind of names only; with more effort with all.
    """
    for version in versions(api):
        is_last = EFFORT > 1 or version == api.max_version
        for path in places(api.name, version):
            if is_repeated(api, version, path):
                continue
            seen = set()
            for names in kinds if is_last and path != TAGS else kinds[:1]:
                data = wide(api.name, version, path, entries_of(api.name), names)
                if data not in seen:
                    seen.add(data)
                    yield Case(f"v{version} {'.'.join(path)}, {names.label}", data)


async def drive(chosen: list[str]) -> dict[str, dict[str, object]]:
    """Return the worst turn by API, for an unauthorized user and for an authorized one."""
    METER.leave_out()
    assembly.LoopBudget = lambda **_: LoopBudget(clock=lambda: METER.clock() * SCALE)  # type: ignore[misc, assignment]
    rows: dict[str, dict[str, object]] = {}
    for label, settings, kinds in (
        ("refused", REFUSING, (UNKNOWN,)),
        ("allowed", {"auto.create.topics.enable": "false"}, (UNKNOWN, SAME, EMPTY)),
    ):
        values = {
            name.replace(".", "_"): value
            for name, value in {**SETTINGS, **FEW_PARTITIONS, **settings}.items()
        }
        with tempfile.TemporaryDirectory(prefix="wide-turns-") as directory:
            async with running([directory], **values) as client:
                driver = Driver(client.broker.listeners[0].addresses[0])
                for api in KAFKA_4.apis.values():
                    assert api.handler, api.decoders
                with METER:
                    await _drive(driver, label, kinds, chosen, rows)
    return rows


async def _drive(
    driver: Driver, who: str, kinds: tuple[Names, ...], chosen: list[str], rows: dict[str, dict[str, object]]
) -> None:
    for api in KAFKA_4.apis.values():
        if api.name not in chosen:
            continue
        worst = rows.setdefault(
            api.name, {"lines": 0, "limit": LINES_PER_ENTRY * entries_of(api.name), "case": "", "where": []}
        )
        for case in cases(api, kinds):
            METER.forget()
            began = time.monotonic()
            answers = await driver.send(case)
            if METER.worst > int(str(worst["lines"])):
                worst |= {"lines": METER.worst, "case": f"{case.label}, {who}", "where": METER.where}
            if "--verbose" in sys.argv:
                took = time.monotonic() - began
                text = f"{METER.worst:,} lines, {len(answers)} answers of {sum(map(len, answers)):,} bytes, {took:.1f} s"
                print(f"{api.name}: {case.label}, {who}: {text}, {METER.where}", file=sys.stderr)


def main() -> int:
    """Test the APIs named on the command line, or those of the day; returns the exit code."""
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")]
    rows = trio.run(drive, chosen or names_of_the_day())
    print(json.dumps(rows))
    too_long = [name for name, worst in rows.items() if int(str(worst["lines"])) > int(str(worst["limit"]))]
    for name in too_long:
        print(f"{name} takes a turn of more than {rows[name]['limit']:,} lines", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
