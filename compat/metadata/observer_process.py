"""An observer of ours in a separate process: python -m compat.metadata.observer_process SERVER.PROPERTIES STATUS.JSON.

It follows the quorum until SIGTERM. STATUS.JSON is replaced after each change; it has the applied offset, the leader and
its epoch, and the longest step of the event loop in ms.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

import trio

from barnabas.broker.peer_security import for_controllers
from barnabas.client import ClientSettings
from barnabas.cluster.kraft.joining import observing
from barnabas.cluster.kraft.loader import ImageDelta
from barnabas.config.loading import BrokerConfig
from barnabas.config.quorum_broker import quorum_settings
from barnabas.environment.real import real_environment
from barnabas.log.format.properties import decode_properties


class LongestStep(trio.abc.Instrument):
    """Measures each step of each task."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._begun = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._begun = time.monotonic()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - self._begun))


class Status:
    """A subscriber that writes the applied state; it also applies the changes itself, and compares the image."""

    def __init__(self, path: Path, steps: LongestStep) -> None:
        self._path = path
        self._steps = steps
        self.deltas = 0
        self.leader = lambda: (-1, -1)

    async def prepare(self, delta: ImageDelta) -> None:
        await trio.lowlevel.checkpoint()

    def publish(self, delta: ImageDelta) -> None:
        self.deltas += 1
        leader_id, epoch = self.leader()
        status = {
            "offset": delta.after.position.offset,
            "leader": leader_id,
            "epoch": epoch,
            "topics": len(delta.after.topics),
            "deltas": self.deltas,
            "longest_step_ms": round(self._steps.longest_ms, 1),
        }
        temporary = self._path.with_suffix(".new")
        temporary.write_text(json.dumps(status))
        os.replace(temporary, self._path)

    async def clean_up(self, delta: ImageDelta) -> None:
        await trio.lowlevel.checkpoint()


async def observe(properties: Path, status_path: Path, steps: LongestStep) -> None:
    """Follow until SIGTERM."""
    config = BrokerConfig(decode_properties(properties.read_bytes()))
    settings = quorum_settings(config)
    client = for_controllers(config, settings, ClientSettings(client_id=f"broker-{settings.node_id}"))
    status = Status(status_path, steps)
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with observing(settings, real_environment(), client) as follower:
            status.leader = lambda: (follower.observer.leader.id, follower.observer.leader.epoch)
            follower.subscribe(status)
            async for _ in signals:
                break


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    steps = LongestStep()
    trio.run(observe, Path(sys.argv[1]), Path(sys.argv[2]), steps, instruments=[steps])


if __name__ == "__main__":
    main()
