"""A client's whole life before a login, as one function of bytes, for a fuzzer guided by coverage.

A broker in a simulated world runs in a separate thread; its event loop is paused between two inputs.
"""

from __future__ import annotations

import queue
import random
import threading
from typing import Any

import trio

from barnabas.testing.simulation.network import Weather
from barnabas.testing.simulation.world import World, run_world
from compat.fuzz import logins
from compat.fuzz.held import Held
from compat.fuzz.session import Session, authenticate, bare, handshake, hello, other
from compat.fuzz.simulated import NOW_S, LogWatch, SimulatedLogins, _line, watched
from compat.fuzz.target import Round

ANSWERED_WITHIN_S = 120
SEEDS = 200


class GuidedLogin:
    """Lifecycle: a broker is started by the first `check`, and ends with the process."""

    name = "login"

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def check(self, data: bytes) -> None:
        """Send `data` over a new connection. Raises AssertionError for a forbidden response."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._inbox.put(data)
        findings = self._outbox.get(timeout=ANSWERED_WITHIN_S)
        assert not findings, findings[0]

    def _run(self) -> None:
        held = Held(NOW_S)
        watch = LogWatch(held)
        try:
            with watched(watch):
                run_world(1, self._program(held, watch), weather=Weather(), seconds_max=10**12)
        except BaseException as error:
            self._outbox.put([f"the broker has ended: {error!r}"])
            raise

    def _program(self, held: Held, watch: LogWatch) -> Any:
        async def program(world: World) -> None:
            async with trio.open_nursery() as nursery:
                directory = SimulatedLogins(with_kerberos=False)  # whose directory lives as long as it does
                broker = directory.broker(world, nursery)
                await broker.start()
                while True:
                    data = self._inbox.get()  # the loop stands still: no time passes in this world
                    result = Round()
                    stream = await world.network.host("client").dial(broker.host, 9092)
                    line = _line(stream)
                    await Session(random.Random(0), line, result, held).run_bytes(data)
                    stream.transport.close()
                    self._outbox.put([finding.text for finding in (*result.findings, *watch.findings)])
                    watch.findings.clear()

        return program

    @staticmethod
    def seeds() -> list[bytes]:
        """Return connections to begin with: what a client sends without waiting."""
        rng = random.Random(1)
        frames = []
        for number in range(SEEDS):
            mechanism = logins.MECHANISMS[number % 4]
            version = number % 2
            token = logins.scram_first(rng) if mechanism.startswith("SCRAM") else b"\0bob\0not-this-one"
            if mechanism == "OAUTHBEARER":
                token = logins.bearer(rng, 0)[0]  # expired, where it is right
            framed = authenticate(token, rng.choice((0, 1, 2)), 3) if version else bare(token)
            frames.append(hello(rng, 1) + handshake(mechanism, version, 2) + framed + other(rng, 4))
        return frames
