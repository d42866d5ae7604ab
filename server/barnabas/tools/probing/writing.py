"""Steps of a probe with `--write`: a topic of its own, records in every version, a group; then it cleans up.

The rule: names begin with the probe's prefix, and remaining objects are reported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.tools.inspection.errors import code_name, error_codes
from barnabas.tools.probing.exchanges import COORDINATOR_COMES, ExchangeError, Target, Wire
from barnabas.tools.probing.harmless import records_of
from barnabas.tools.probing.messages import make
from barnabas.wire import registry

Versions = dict[int, tuple[int, int]]
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, CREATE, DELETE, INIT, DELETE_GROUPS = (
    0,
    1,
    2,
    3,
    8,
    19,
    20,
    22,
    42,
)
READY_S = 20.0
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Written:
    """One attempt, and its outcome."""

    what: str
    seen: str
    is_good: bool


async def try_writing(target: Target, versions: Versions, name: str) -> list[Written]:
    """Write and read records, and delete the topic again. Raises ClientError."""
    steps: list[Written] = []
    async with target.connect() as wire:
        writer = _Writer(wire, versions, name, steps)
        try:
            if await writer.make_topic():
                await writer.produce()
                await writer.fetch()
                await writer.commit()
        except ExchangeError as error:
            steps.append(Written("and then", str(error), False))
    async with target.connect() as wire:
        await _Writer(wire, versions, name, steps).clean_up()
    return steps


class _Writer:
    def __init__(self, wire: Wire, versions: Versions, name: str, steps: list[Written]) -> None:
        self._wire = wire
        self._versions = versions
        self._name = name
        self._steps = steps
        self._topic_id = bytes(16)
        self._sent = 0

    def _newest(self, key: int) -> int:
        return min(self._versions[key][1], registry.info(key).max_stable_version)

    async def _ask(self, key: int, values: dict[str, Any], version: int | None = None) -> Any:
        version = self._newest(key) if version is None else version
        self._wire.journal.clear()
        return await self._wire.ask(make(registry.name_of(key), version, values), version)

    def _say(self, what: str, answer: Any) -> bool:
        codes = [code_name(code) for code, _, _ in error_codes(answer)]
        self._steps.append(Written(what, ", ".join(codes) or "done", not codes))
        return not codes

    async def make_topic(self) -> bool:
        """Make the topic, and wait for its leader."""
        if CREATE not in self._versions:
            self._steps.append(Written("make a topic", "CreateTopics is not served", False))
            return False
        topic = {
            "name": self._name,
            "num_partitions": 1,
            "replication_factor": -1 if self._newest(CREATE) >= 4 else 1,
        }
        if not self._say("make a topic", await self._ask(CREATE, {"topics": [topic], "timeout_ms": 10_000})):
            return False
        with trio.move_on_after(READY_S):
            while True:
                asked = {
                    "topics": [{"name": self._name}],
                    "allow_auto_topic_creation": self._newest(METADATA) < 4,
                }
                described = (await self._ask(METADATA, asked)).topics[0]
                if (
                    not described.error_code
                    and described.partitions
                    and described.partitions[0].leader_id >= 0
                ):
                    self._topic_id = described.topic_id
                    return True
                await trio.sleep(PAUSE_S)
        self._steps.append(Written("find its leader", f"none in {READY_S:g} s", False))
        return False

    async def produce(self) -> None:
        """Append a record in each version of Produce."""
        low, high = self._versions[PRODUCE][0], self._newest(PRODUCE)
        for version in range(low, high + 1):
            records = records_of(version, b"probe", timestamp_ms=int(time.time() * 1000))
            partition = {"index": 0, "records": records}
            topic = {"name": self._name, "topic_id": self._topic_id, "partition_data": [partition]}
            try:
                answer = await self._ask(
                    PRODUCE, {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}, version
                )
            except ExchangeError as error:
                self._steps.append(Written(f"Produce v{version}", str(error), False))
                return
            self._sent += self._say(f"Produce v{version}", answer)

    async def fetch(self) -> None:
        """Check by ListOffsets that the log ends behind the records that were sent."""
        query = {"partition_index": 0, "timestamp": -1}
        topic = {"name": self._name, "partitions": [query]}
        version = max(1, self._newest(LIST_OFFSETS))
        answer = await self._ask(LIST_OFFSETS, {"replica_id": -1, "topics": [topic]}, version)
        end = answer.topics[0].partitions[0].offset
        self._steps.append(Written("the log end", f"{end} after {self._sent} records", end == self._sent))

    async def commit(self) -> None:
        """Commit an offset of a group that has no members."""
        if OFFSET_COMMIT not in self._versions or self._newest(OFFSET_COMMIT) < 2:
            return
        place = {"partition_index": 0, "committed_offset": self._sent, "committed_metadata": ""}
        topic = {"name": self._name, "topic_id": self._topic_id, "partitions": [place]}
        asked = {"group_id": self._name, "generation_id_or_member_epoch": -1, "topics": [topic]}
        with trio.move_on_after(READY_S):  # a broker's first group has it make a topic first
            while True:
                answer = await self._ask(OFFSET_COMMIT, asked)
                if answer.topics[0].partitions[0].error_code not in COORDINATOR_COMES:
                    break
                await trio.sleep(PAUSE_S)
        self._say("commit an offset", answer)

    async def clean_up(self) -> None:
        """Remove the group and the topic."""
        try:
            if DELETE_GROUPS in self._versions:
                await self._ask(DELETE_GROUPS, {"groups_names": [self._name]})
            if DELETE in self._versions and CREATE in self._versions:
                named = {"topics": [{"name": self._name}], "topic_names": [self._name], "timeout_ms": 10_000}
                self._say(f"remove the topic {self._name}", await self._ask(DELETE, named))
        except ExchangeError as error:
            self._steps.append(
                Written(f"remove the topic {self._name}", f"{error}: it may still be there", False)
            )
