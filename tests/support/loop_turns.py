"""Drive every API with its worst input and count the longest turn of the loop: `make turns ARGS="[API ...]"`.

Prints one JSON object: by API the most lines in a turn, the request that had them, and where they were; before it, with
`--verbose`, a line for each request. The exit code is 1 if a turn is too long. It is a separate process, because only
lines of the interpreted sources can be counted. BARNABAS_TEST_EFFORT scales the content of the broker.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time

import trio

from tests.support.loop_meter import LINES_MAX, LoopMeter

METER = LoopMeter()
METER.count_calls_into_c()

from barnabas.broker import assembly  # noqa: E402
from barnabas.serving.loop_budget import LoopBudget  # noqa: E402
from barnabas.serving.release import KAFKA_4  # noqa: E402
from barnabas.tools.inspection.errors import error_codes  # noqa: E402
from barnabas.tools.inspection.frames import read_response  # noqa: E402
from compat.hostile.attack import decoded, produce_values  # noqa: E402
from compat.hostile.batches import one_record  # noqa: E402
from compat.hostile.messages import frame  # noqa: E402
from compat.kit.wire import Values  # noqa: E402
from tests.support.brokers import running  # noqa: E402
from tests.support.effort import EFFORT  # noqa: E402
from tests.support.worst_inputs import DEEP, ROWS, WIDE, Case, State  # noqa: E402

ANSWER_TIMEOUT_S = 30 * min(EFFORT, 10)
"""Timeout of a response: the broker may wait for another event."""
HANDFUL_S = 0.3
SETTINGS = {
    "metrics.listener": "127.0.0.1:0",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.segment.delete.delay.ms": "600000",
}
ASKING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
}
"""An authorizer that allows every operation, after it has searched for all denials."""


class Driver:
    """A client with steps that are not counted."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    async def ask(self, api: str, version: int, values: Values) -> Values:
        """The decoded answer to one request."""
        (answer,) = await self.send(Case("", frame(api, version, values)))
        return decoded(api, version, answer)

    async def send(self, case: Case) -> list[bytes]:
        """Send the bytes of a case; returns its responses, fewer if the connection is closed or the wait times out."""
        answers: list[bytes] = []
        stream = await trio.open_tcp_stream(*self.address)
        async with stream:
            with trio.move_on_after(ANSWER_TIMEOUT_S if case.answers else HANDFUL_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, stream, case.data)
                    data = bytearray()
                    while len(answers) < max(case.answers, 1):
                        try:
                            part = await stream.receive_some(1 << 20)
                        except trio.BrokenResourceError:
                            break
                        if not part:
                            break
                        data += part
                        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">i", data)[0]):
                            answers.append(bytes(data[4 : 4 + size]))
                            del data[: 4 + size]
                    nursery.cancel_scope.cancel()
        return answers

    @staticmethod
    async def _write(stream: trio.SocketStream, data: bytes) -> None:
        METER.leave_out()
        try:
            await stream.send_all(data)
        except trio.BrokenResourceError:
            return


async def fill(driver: Driver, state: State) -> None:
    """Create the content that `state` describes, by requests."""
    topics = [{"Name": f"topic-{n}", "NumPartitions": 1, "ReplicationFactor": 1} for n in range(state.topics)]
    topics.append({"Name": WIDE, "NumPartitions": state.partitions, "ReplicationFactor": 1})
    topics.append({"Name": DEEP, "NumPartitions": 1, "ReplicationFactor": 1})
    for start in range(0, len(topics), 500):
        answer = await driver.ask(
            "CreateTopics", 4, {"Topics": topics[start : start + 500], "timeoutMs": 60_000}
        )
        assert {topic["ErrorCode"] for topic in answer["Topics"]} == {0}, answer
    seen = await driver.ask("Metadata", 12, {"Topics": None})
    ids = {topic["Name"]: topic["TopicId"] for topic in seen["Topics"]}
    state.topic_ids = [ids[f"topic-{n}"] for n in range(state.topics)]
    for start in range(0, state.batches, 500):
        frames = [
            frame(
                "Produce",
                7,
                produce_values(DEEP, [(0, one_record(b"x" * 20, timestamp_ms=state.now_ms - n))]),
            )
            for n in range(start, min(start + 500, state.batches))
        ]
        await driver.send(Case("", b"".join(frames), len(frames)))
    every = [
        {"Name": f"topic-{n}", "PartitionData": [{"Index": 0, "Records": one_record(b"x")}]}
        for n in range(state.topics)
    ]
    await driver.ask("Produce", 7, {"Acks": 1, "TimeoutMs": 30_000, "TopicData": every})
    await _until(driver, "FindCoordinator", 1, {"Key": "group-0", "KeyType": 0})
    offset = [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": "x"}]
    for start in range(0, state.groups, 500):
        frames = [
            frame(
                "OffsetCommit",
                2,
                {
                    "GroupId": f"group-{n}",
                    "GenerationIdOrMemberEpoch": -1,
                    "Topics": [{"Name": "topic-0", "Partitions": offset}],
                },
            )
            for n in range(start, min(start + 500, state.groups))
        ]
        await driver.send(Case("", b"".join(frames), len(frames)))
    all_topics = [{"Name": f"topic-{n}", "Partitions": offset} for n in range(state.topics)]
    await driver.ask(
        "OffsetCommit", 2, {"GroupId": "group-0", "GenerationIdOrMemberEpoch": -1, "Topics": all_topics}
    )
    await _until(driver, "FindCoordinator", 1, {"Key": "transaction-0", "KeyType": 1})
    frames = [
        frame("InitProducerId", 1, {"TransactionalId": f"transaction-{n}", "TransactionTimeoutMs": 60_000})
        for n in range(state.transactional_ids)
    ]
    await driver.send(Case("", b"".join(frames), len(frames)))
    answer = await driver.ask("InitProducerId", 1, {"TransactionalId": WIDE, "TransactionTimeoutMs": 600_000})
    state.producer = answer["ProducerId"], answer["ProducerEpoch"]


async def _until(driver: Driver, api: str, version: int, values: Values) -> None:
    """Repeat a request until it succeeds: the first one creates a coordinator's topic."""
    while (await driver.ask(api, version, values))["ErrorCode"]:
        await trio.sleep(0.01)


def check(case: Case, answers: list[bytes]) -> None:
    """Check that a case succeeded, if only then the API does its whole work."""
    if case.succeeds is None:
        return
    assert len(answers) == case.answers, f"{case.label}: {len(answers)} answers of {case.answers}"
    for answer in answers:
        read = read_response(answer, *case.succeeds)
        assert read.message is not None, f"{case.label}: {read.problem}"
        codes = error_codes(read.message)
        assert not codes, f"{case.label}: {codes[:3]}"


async def drive(directory: str, chosen: list[str]) -> dict[str, dict[str, object]]:
    """Return the worst turn by API."""
    METER.leave_out()
    effort = min(EFFORT, 10)
    state = State(
        topics=1_000 * effort,
        partitions=1_000,
        batches=10_000 * min(EFFORT, 100),
        groups=1_000 * min(EFFORT, 100),
        transactional_ids=200 * effort,
        now_ms=int(time.time() * 1000),
    )
    assembly.LoopBudget = lambda **_: LoopBudget(clock=METER.clock)  # type: ignore[misc, assignment]
    settings = {name.replace(".", "_"): value for name, value in {**SETTINGS, **ASKING}.items()}
    worst_of: dict[str, dict[str, object]] = {}
    async with running([directory], **settings) as client:
        driver = Driver(client.broker.listeners[0].addresses[0])
        await fill(driver, state)
        for api in KAFKA_4.apis.values():
            assert api.handler, api.decoders  # imported once, so not by the first request
        with METER:
            for api in KAFKA_4.apis.values():
                if api.name not in ROWS or (chosen and api.name not in chosen):
                    continue
                worst: dict[str, object] = {"lines": 0, "case": "", "where": []}
                for case in ROWS[api.name](state):
                    METER.forget()
                    began = time.monotonic()
                    answers = await driver.send(case)
                    check(case, answers)
                    if METER.worst > int(str(worst["lines"])):
                        worst = {"lines": METER.worst, "case": case.label, "where": METER.where}
                    if "--verbose" in sys.argv:
                        took = time.monotonic() - began
                        text = f"{METER.worst:,} lines, {len(answers)}/{case.answers} answers, {took:.1f} s"
                        print(f"{api.name}: {case.label}: {text}, {METER.where}", file=sys.stderr)
                worst_of[api.name] = worst
    return worst_of


def main() -> int:
    """Drive the APIs named on the command line, or all; returns the exit code."""
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")]
    with tempfile.TemporaryDirectory(prefix="loop-turns-") as directory:
        figures = trio.run(drive, directory, chosen)
    print(json.dumps(figures))
    too_long = [name for name, worst in figures.items() if int(str(worst["lines"])) > LINES_MAX]
    for name in too_long:
        print(f"{name} takes a turn of more than {LINES_MAX:,} lines", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
