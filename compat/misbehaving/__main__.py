"""Stock clients' cases against a broker that commits one set of faults: `python -m compat.misbehaving [--clients NAMES]`.

The rule: a verdict counts only if the fault has applied. Each client and fault has a new broker, so that state of one does
not affect the next; faults and hits go over the control API.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.matrix import clients
from compat.matrix.brokers import Barnabas

CLIENTS = ("java", "confluent-kafka", "kafka-python", "franz-go", "kafkajs")
RECORDS = 2000
CASE_TIMEOUT_S = 60


@dataclass(frozen=True)
class Row:
    """A fault, the cases that meet it, and what is expected: that they pass all the same.

    A client that is listed may fail: whether it does depends on which answer the fault strikes.
    """

    fault: str
    rules: tuple[str, ...]
    cases: tuple[str, ...]
    failures: tuple[tuple[str, str], ...] = ()
    """Clients of which a case may fail, and the reason."""


OFF_BY_ONE = (
    "java",
    "it keeps a connection whose answers it cannot match: its records end with delivery.timeout.ms, two minutes",
)
NOBODY_READS = (
    "kafka-python",
    "the task that reads a connection ends at an answer that it cannot decode, and the connection stays open: each such "
    "answer costs request_timeout_ms, 30 s, and two of them are more than the minute that the case has",
)
PRODUCE, COMMIT = ("idempotent-produce",), ("commit-resume",)


def _raised_by(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "it raises the error to the application, whose decision it is") for name in names)


ENDS = (
    "kafkajs",
    "its decoder runs over the batch's end: an error that is not retriable, at which its consumer ends for good",
)
DAMAGED = {
    "crc": _raised_by("java", "kafka-python", "franz-go"),
    "byte": (
        *_raised_by("java", "kafka-python", "franz-go"),
        ("confluent-kafka", "check.crcs is off by default: it delivers the damaged record"),
        ("kafkajs", "it reads the checksum and compares it with nothing: it delivers the damaged record"),
    ),
    "count": (*_raised_by("java", "kafka-python"), ENDS),
    "count-negative": (
        *_raised_by("java", "kafka-python", "franz-go"),
        (
            "kafkajs",
            "a count of -1 is an array of none to it: it goes on after the batch, and its records are lost",
        ),
    ),
    "count-huge": (*_raised_by("java", "kafka-python"), ENDS),
    "compression": _raised_by("java", "kafka-python", "franz-go", "confluent-kafka"),
    "magic": (
        *_raised_by("java", "confluent-kafka"),
        ("franz-go", "it leaves a batch of a magic that it does not know out, and goes on after it"),
    ),
    "truncate": _raised_by("java", "kafka-python"),
}
ROWS = (
    Row("moved leader", ("Produce,Fetch every=3 times=6 -> error=NOT_LEADER_OR_FOLLOWER",), PRODUCE),
    Row("lost acknowledgements", ("Produce times=2 -> reset=after",), PRODUCE),
    Row(
        "answers cut in half",
        ("Produce,Fetch every=2 times=3 -> cut=reset",),
        PRODUCE,
        (("kafkajs", "after a cut answer its consumer asks for nothing more, or its process ends"),),
    ),
    Row("late answers", ("Produce,Fetch,Metadata -> delay_ms=5..50",), PRODUCE),
    Row("answers twice", ("Produce,Fetch every=4 times=3 -> twice",), PRODUCE, (OFF_BY_ONE,)),
    Row(
        "answers swapped",
        ("Produce every=4 times=2 -> swap", "Produce -> hold_ms=20"),
        PRODUCE,
        (OFF_BY_ONE,),
    ),
    Row(
        "garbage for answers",
        ("Produce,Fetch every=4 times=2 -> garbage=body",),
        PRODUCE,
        (OFF_BY_ONE, NOBODY_READS),
    ),
    Row(
        "wrong correlation ids",
        ("Produce,Fetch every=2 times=2 -> correlation_id=wrong",),
        PRODUCE,
        (
            OFF_BY_ONE,
            ("confluent-kafka", "it drops the answer, and waits for socket.timeout.ms, a minute"),
            ("kafkajs", "it drops the answer, and waits for requestTimeout, half a minute each time"),
        ),
    ),
    Row("late by the byte", ("Produce,Fetch -> delay_us_per_byte=5",), PRODUCE),
    Row("stale metadata", ("Metadata after=2 times=4 -> stale",), PRODUCE),
    Row("throttled", ("Produce,Fetch -> throttle_ms=20",), PRODUCE),
    *(
        Row(
            f"damaged batch, once: {how}", (f"Fetch times=1 -> corrupt={how}",), PRODUCE, DAMAGED.get(how, ())
        )
        for how in (
            "crc",
            "byte",
            "count",
            "count-negative",
            "count-huge",
            "compression",
            "magic",
            "truncate",
        )
    ),
    Row("refused connections", ("connect every=3 times=3 -> refuse",), COMMIT),
    Row(
        "moved coordinator",
        ("OffsetCommit,JoinGroup,SyncGroup every=2 times=4 -> error=NOT_COORDINATOR",),
        COMMIT,
    ),
    Row("no coordinator", ("FindCoordinator times=2 -> error=COORDINATOR_NOT_AVAILABLE",), COMMIT),
    Row(
        "coordinator loads", ("OffsetFetch,JoinGroup times=3 -> error=COORDINATOR_LOAD_IN_PROGRESS",), COMMIT
    ),
    Row(
        "expired session",
        ("Heartbeat times=1 -> expire",),
        ("consume-group",),
        (
            (
                "franz-go",
                "its second member has read everything before the first is back, and both are waited for",
            ),
        ),
    ),
    Row(
        "concurrent transactions",
        ("AddPartitionsToTxn,EndTxn every=2 times=4 -> error=CONCURRENT_TRANSACTIONS",),
        ("transactions",),
        (
            (
                "kafkajs",
                "the error is retriable in its table, and EndTxn and AddPartitionsToTxn are sent once all the same",
            ),
        ),
    ),
)


def main() -> int:
    """Run all of it; returns 1 when a verdict is not the expected one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="names of directories of compat/clients")
    parser.add_argument("--faults", default="", help="only those whose names hold this")
    options = parser.parse_args()
    failures = 0
    for client in options.clients.split(","):
        for row in ROWS:
            if options.faults in row.fault:
                failures += _run(client, row)
    print(f"{failures} unexpected" if failures else "all as expected")
    return 1 if failures else 0


def _run(client: str, row: Row) -> int:
    """Run a row's cases with a client; returns how many verdicts are not the expected ones."""
    failures = 0
    for case in row.cases:
        with tempfile.TemporaryDirectory(prefix="misbehaving-") as name:
            directory = Path(name)
            broker = Barnabas(directory, {"control.listener": "127.0.0.1:0"})
            broker.start()
            try:
                url = f"http://{_control(broker)}"
                for rule in row.rules:
                    _ask(f"{url}/v1/faults", {"short": rule})
                environment = {"COMPAT_RECORDS": str(RECORDS), "COMPAT_CASE_TIMEOUT_S": str(CASE_TIMEOUT_S)}
                verdict = clients.run(
                    clients.program(client), broker.bootstrap, [case], environment, directory / "said"
                )[case]
                hits = sum(fault["hits"] for fault in _ask(f"{url}/v1/faults")["faults"])
            finally:
                broker.stop()
        reason = dict(row.failures).get(client)
        is_right = verdict.status == "SKIP" or (hits > 0 and (verdict.status == "PASS" or reason is not None))
        failures += not is_right
        text = f"known: {reason}" if reason else verdict.detail
        print(
            f"{'ok ' if is_right else 'BAD'} {client:16} {row.fault:30} {case:20} {verdict.status} hits={hits} {text}",
            flush=True,
        )
    return failures


def _control(broker: Barnabas) -> str:
    address = broker.words.get("control", "")
    return address.removeprefix("http://")


def _ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=20) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
