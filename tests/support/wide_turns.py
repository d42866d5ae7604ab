"""Drive every API with as many entries as a request may have, and count the longest turn.

    PYTHONPATH=server:. python -m tests.support.wide_turns [--verbose] [API ...]

All is a fraction of the real size: entries, how many lines of Python a turn may have, and the loop's budget. So a loop of
two lines for each entry that does not yield is found. Prints one JSON object: by API the worst turn. A process of its
own, as `loop_turns`.

Counting lines takes ten times as long as running them. So the CPU time of each turn is measured first, and lines are
counted only of APIs of which a turn took a third of the time for which it has lines on this machine; of the others `lines`
is what that time has room for. With more effort, or with `--verbose`, the lines of all are counted.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from typing import Any

import trio

from barnabas.broker import assembly
from barnabas.serving.apis import Api
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.release import KAFKA_4
from barnabas.wire.headers import parse_request_header
from compat.hostile.messages import Path
from tests.support.brokers import running
from tests.support.effort import EFFORT
from tests.support.loop_meter import SCALE, SCALED_LINES_MAX, LoopMeter, TurnTimer, seconds_per_line
from tests.support.loop_turns import METER, SETTINGS, Driver
from tests.support.wide_requests import EMPTY, SAME, TAGS, UNKNOWN, Names, places, shape, wide
from tests.support.worst_inputs import Case

ENTRIES = 250_000 // SCALE
"""The default of max.request.entries is 250,000."""
DOUBT = 3
"""Lines are counted where the time has room for a third of those that are too many: some lines are that quick."""
REFUSING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:nobody",
}


def versions(api: Api) -> Iterator[int]:
    """The first and the last version; with more effort all whose requests are not laid out as those before."""
    for version in range(api.min_version, api.max_version + 1):
        is_new = version == api.min_version or api.decoders[version] is not api.decoders[version - 1]
        if version == api.max_version or (is_new and (EFFORT > 1 or version == api.min_version)):
            yield version


def is_repeated(api: Api, version: int, path: Path) -> bool:
    """Say whether the last version has the same array, with the same fields in it: with more effort both are sent."""
    if EFFORT > 1 or version == api.max_version:
        return False
    return path == TAGS or shape(api.name, version, path) == shape(api.name, api.max_version, path)


def cases(api: Api, kinds: tuple[Names, ...]) -> Iterator[Case]:
    """The requests of an API; of those without any name each is sent once.

    Arrays that the first version lays out in another way go through another decoder, and then the same code: they are sent
    with the first kind of names. With more effort all of them are.
    """
    for version in versions(api):
        is_last = EFFORT > 1 or version == api.max_version
        for path in places(api.name, version):
            if is_repeated(api, version, path):
                continue
            known = set()
            for names in kinds if is_last and path != TAGS else kinds[:1]:
                data = wide(api.name, version, path, ENTRIES, names)
                if data not in known:
                    known.add(data)
                    yield Case(f"v{version} {'.'.join(path)}, {names.label}", data)


async def drive(meter: LoopMeter | TurnTimer, chosen: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the worst turn by API: of a client that is refused, then of one that may do everything."""
    meter.leave_out()
    assembly.LoopBudget = lambda **_: LoopBudget(clock=lambda: meter.clock() * SCALE)  # type: ignore[misc, assignment]
    worst: dict[str, dict[str, Any]] = {}
    for label, settings, kinds in (
        ("refused", REFUSING, (UNKNOWN,)),
        ("allowed", {"auto.create.topics.enable": "false"}, (UNKNOWN, SAME, EMPTY)),
    ):
        values = {name.replace(".", "_"): value for name, value in {**SETTINGS, **settings}.items()}
        with tempfile.TemporaryDirectory(prefix="wide-turns-") as directory:
            async with running([directory], **values) as client:
                driver = Driver(client.broker.listeners[0].addresses[0])
                for api in KAFKA_4.apis.values():
                    assert api.handler, api.decoders
                with meter:
                    await _drive(meter, driver, label, kinds, chosen, worst)
    return worst


async def _drive(
    meter: LoopMeter | TurnTimer, driver: Driver, client: str, kinds: tuple[Names, ...], chosen: Collection[str],
    worst: dict[str, dict[str, Any]],
) -> None:  # fmt: skip
    for api in KAFKA_4.apis.values():
        if api.member_only or (chosen and api.name not in chosen):
            continue
        of_api = worst.setdefault(api.name, {"lines": 0, "case": "", "where": []})
        for case in cases(api, kinds):
            if not gc.isenabled():
                gc.collect(1)
            meter.forget()
            began = time.monotonic()
            answers = await driver.send(case)
            where = meter.where if isinstance(meter, LoopMeter) else []
            if meter.worst > of_api["lines"]:
                of_api |= {"lines": meter.worst, "case": f"{case.label}, {client}", "where": where}
            if "--verbose" in sys.argv:
                print(
                    f"{api.name}: {case.label}, {client}: {meter.worst:,} lines, {len(answers)} answers of "
                    f"{sum(map(len, answers)):,} bytes, {time.monotonic() - began:.1f} s, {where}",
                    file=sys.stderr,
                )


def line_seconds() -> float:
    """Return the CPU time of a line, of a decoder and what it calls."""
    api = next(api for api in KAFKA_4.apis.values() if api.name == "OffsetCommit")
    body = wide(api.name, api.max_version, ("Topics",), ENTRIES)[4:]
    position = parse_request_header(bytearray(body)).body_position
    return seconds_per_line(lambda: api.decoders[api.max_version](body, position))


def worst_turns(chosen: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the worst turn by API, in lines."""
    if EFFORT > 1 or "--verbose" in sys.argv:
        return trio.run(drive, METER, chosen)
    line_s = line_seconds()
    gc.disable()  # a collection takes a while, and no lines
    worst = trio.run(drive, TurnTimer(), chosen)
    gc.enable()
    for of_api in worst.values():
        of_api["lines"] = round(of_api["lines"] / line_s)
    slow = {name for name, of_api in worst.items() if of_api["lines"] > SCALED_LINES_MAX // DOUBT}
    if slow:
        print(f"lines are counted of {', '.join(sorted(slow))}", file=sys.stderr)
        worst |= trio.run(drive, METER, slow)
    return worst


def main() -> int:
    """Drive the APIs that are named on the command line, or all."""
    worst = worst_turns([name for name in sys.argv[1:] if not name.startswith("-")])
    print(json.dumps(worst))
    too_long = [name for name, of_api in worst.items() if of_api["lines"] > SCALED_LINES_MAX]
    for name in too_long:
        print(f"{name} takes a turn of more than {SCALED_LINES_MAX:,} lines", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
