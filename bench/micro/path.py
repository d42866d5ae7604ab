"""`python -m bench.micro.path`: the path of one request through the sources, in calls, files and changes of file.

The rule: the uncompiled sources are traced from the received frame to the sent response, or until the response is parked.
Generated code is not counted. A change of file is a call into another file than that of the previous call.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import wire as frames
from bench.members import ClassicMember
from bench.micro.coordinators import Mailbox
from bench.micro.requests import answered, create
from bench.tools import ROOT

if TYPE_CHECKING:
    from types import FrameType

SOURCES = str(ROOT / "server" / "barnabas")
GENERATED = f"{SOURCES}/wire/generated"
TOPIC = "path"
GOALS = {"Heartbeat, the same again": 20, "Produce": 40, "Fetch": 40, "JoinGroup, until it is parked": 20}


class Way(NamedTuple):
    """Calls of one request, each as file and function."""

    name: str
    calls: list[tuple[str, str]]

    @property
    def files(self) -> int:
        """Number of files that it goes through."""
        return len({file for file, _ in self.calls})

    @property
    def changes(self) -> int:
        """Number of calls into another file than that of the previous call."""
        return sum(before[0] != after[0] for before, after in zip(self.calls, self.calls[1:], strict=False))


def followed(name: str, call: Callable[[], object]) -> Way:
    """Return the calls that `call` makes in the broker's sources."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        file = code.co_filename
        if event == "call" and file.startswith(SOURCES) and not file.startswith(GENERATED):
            calls.append((file[len(SOURCES) + 1 :], code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Way(name, calls)


def ways() -> list[Way]:
    """Return the path of each request."""
    import trio

    from barnabas.broker.assembly import assembled
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment.real import real_environment

    with TemporaryDirectory() as directory:
        config = BrokerConfig(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(Path(directory, "data")),
                "group.initial.rebalance.delay.ms": "0",
            }
        )

        async def main() -> list[Way]:
            async with assembled(config, real_environment()) as broker, trio.open_nursery() as nursery:
                await nursery.start(broker.serve)
                followed_ways = await _all(broker)
                nursery.cancel_scope.cancel()
            return followed_ways

        return trio.run(main)


async def _all(broker: Any) -> list[Way]:
    import trio

    from barnabas.serving.context import ConnectionInfo

    mailbox: Any = Mailbox()

    def connection(name: str) -> Any:
        return ConnectionInfo(len(name), "PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))

    connections = {name: connection(name) for name in ("one", "another")}

    def begin(frame: bytes, who: str = "one") -> None:
        broker.connections.parts.begin(connections[who], mailbox, memoryview(bytearray(frame[4:]))).advance()

    async def ask(frame: bytes) -> bytes:
        await answered(broker, connections["one"], mailbox, frame)
        return bytes(mailbox.response)

    await create(broker, TOPIC, 1)
    batch = frames.record_batch([b"x" * 100], time.time_ns() // 1_000_000)
    produce, fetch = frames.produce_v7(TOPIC, [0], batch), frames.fetch_v11(TOPIC, [0], 0, 100)
    await ask(frames.request(frames.FIND_COORDINATOR, 0, struct.pack(">h", 5) + b"group"))
    member = ClassicMember("group", TOPIC)
    frame = member.begin()
    while not member.assignment:
        wait_s, frame = member.answered(await ask(frame))
        await trio.sleep(min(wait_s, 0.02))
    for _ in range(3):
        await ask(produce)
        await ask(fetch)
        await ask(frame)
    places = [
        followed("Produce", lambda: begin(produce)),
        followed("Fetch", lambda: begin(fetch)),
        followed("Heartbeat, the same again", lambda: begin(frame)),
    ]
    _, sync = member.answered(await ask(member.begin()))
    places.append(followed("SyncGroup", lambda: begin(sync)))
    await ask(frame)
    parked = ClassicMember("group", TOPIC).begin()
    places.append(followed("JoinGroup, until it is parked", lambda: begin(parked, "another")))
    return places


def main() -> int:
    """Print a line for each request, with `--calls` each of its calls."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.path", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print each call")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "server"))
    print(f"{'':32}{'calls':>8}{'files':>8}{'changes':>9}{'goal':>7}")
    for way in ways():
        goal = GOALS.get(way.name)
        print(f"{way.name:32}{len(way.calls):8}{way.files:8}{way.changes:9}{f'<= {goal}' if goal else '':>7}")
        if options.calls:
            for file, function in way.calls:
                print(f"    {file:40} {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
