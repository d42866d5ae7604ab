"""Try each row of the table on a broker: python -m compat.commands [barnabas|4.4|4.3.1|3.9 ...] [--table] [--verbose].

The exit code is 1 if a command has another exit code or output than its row.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.cli import main as main_of_barnabas
from compat.commands.rows import KAFKA_3, KAFKA_4, KAFKA_44, OURS, Row, rows, table
from compat.kit.sides import PASSWORD, Side
from compat.security.sides import ADMIN, barnabas_alone, kafka_alone

WAIT_S = 120
PROPAGATION_S = 10
READING = ("list", "describe", "renew", "offsets", "resolve")
MORE = {
    "delegation.token.secret.key": "0123456789abcdef0123456789abcdef",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


class Trial:
    """One broker on which all rows are tried, in their order."""

    def __init__(self, name: str, side: Side, directory: Path) -> None:
        self.name = name
        self._address = f"127.0.0.1:{side.sasl_port}"
        self._directory = directory
        self._token = "none"
        self._ending = threading.Event()
        self._member: threading.Thread | None = None
        self._open: Producer | None = None
        (directory / "offsets.csv").write_text("orders,0,2\n")
        secret = directory / "password"
        secret.write_text("open sesame\n")
        secret.chmod(0o600)

    def failure(self, row: Row) -> str:
        """Try a row; returns the problem, empty if it has the expected result."""
        if row.is_preparation:
            getattr(self, f"_{row.ours[1:]}")()
            return ""
        line = row.ours.replace("{directory}", str(self._directory)).replace("{token}", self._token)
        words = shlex.split(line)
        failure, output = self._tried(row, words)
        deadline = time.monotonic() + PROPAGATION_S
        while failure and words[1:2] and words[1] in READING and time.monotonic() < deadline:
            failure, output = self._tried(
                row, words
            )  # brokers learn of changes after the controller has answered
        if row.ours.startswith("tokens create"):
            self._token = output.splitlines()[1].split()[0]
        return failure

    def _tried(self, row: Row, words: Sequence[str]) -> tuple[str, str]:
        """Try a row once; returns the problem, empty for none, and the output."""
        ended_with, output = self._run(*words)
        wrong = []
        code = row.codes.get(self.name, row.code)
        if ended_with != code:
            wrong.append(f"ends with {ended_with}, not {code}")
        says = row.says.replace("{token}", re.escape(self._token))
        if code == row.code and not re.search(says, output):
            wrong.append(f"does not say {says!r}")
        if "Traceback" in output or "sub-exception" in output:
            wrong.append("fails with a traceback")
        return f"{', '.join(wrong)}:\n{output}" if wrong else "", output

    def _run(self, *arguments: str) -> tuple[int, str]:
        """Run a command in this process, as a user without a terminal; returns its exit code and its output."""
        command = [*arguments, "--bootstrap", self._address, "--user", ADMIN, "--mechanism", "PLAIN"]
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = main_of_barnabas(command)
        return code, output.getvalue()

    # --- actions of other clients before a row ------------------------------------------------------------------

    def _settings(self, **more: str) -> dict[str, str]:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "log_level": "0"}
        login |= {"sasl.username": ADMIN, "sasl.password": PASSWORD}
        return {
            "bootstrap.servers": self._address,
            **login,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def _produce(self) -> None:
        """Append ten records to each of two partitions, and commit for a group that has no members."""
        producer = Producer(self._settings())
        for partition in (0, 1):
            for number in range(10):
                producer.produce("orders", str(number).encode(), partition=partition)
        assert producer.flush(WAIT_S) == 0
        consumer = Consumer(self._settings(group_id="readers"))
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
                break
            except KafkaException:  # the coordinator is loading, as it does after its start
                if time.monotonic() > deadline:
                    raise
        consumer.close()

    def _join(self) -> None:
        """Have a member join a group."""
        ready = threading.Event()

        def consume() -> None:
            consumer = Consumer(self._settings(group_id="live", client_id="live-client"))
            consumer.subscribe(["orders"], on_assign=lambda *_: ready.set())
            while not self._ending.is_set():
                consumer.poll(0.2)
            consumer.close()

        self._member = threading.Thread(target=consume)
        self._member.start()
        assert ready.wait(WAIT_S)

    def _leave(self) -> None:
        self.close()

    def _transaction(self) -> None:
        """Leave a transaction open, end another, and initialize a third transactional id without one."""
        for name in ("mover", "settled", "empty"):
            producer = Producer(self._settings(transactional_id=name))
            producer.init_transactions(WAIT_S)
            if name == "empty":
                continue
            producer.begin_transaction()
            producer.produce("orders", b"of a transaction", partition=0 if name == "mover" else 2)
            producer.flush(WAIT_S)
            if name == "settled":
                producer.commit_transaction(WAIT_S)
            else:
                self._open = producer

    def close(self) -> None:
        """End the member."""
        self._ending.set()
        if self._member is not None:
            self._member.join(WAIT_S)


def _brokers() -> dict[str, Callable[[], AbstractContextManager[Side]]]:
    tokens = {"delegation.token.secret.key": MORE["delegation.token.secret.key"]}
    return {
        OURS: lambda: barnabas_alone(more=tokens),
        KAFKA_44: lambda: kafka_alone("4.4", more=tokens),
        KAFKA_4: lambda: kafka_alone("4.3.1", more=tokens),
        KAFKA_3: lambda: kafka_alone("3.9", more=MORE),
    }


def main() -> int:
    """Try the rows; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.commands", description=__doc__)
    parser.add_argument(
        "brokers", nargs="*", metavar="BROKER", help="barnabas, 4.4, 4.3.1, 3.9 (default: all)"
    )
    parser.add_argument("--table", action="store_true", help="print the table of the page, and try nothing")
    parser.add_argument("--verbose", action="store_true", help="print each row")
    options = parser.parse_args()
    if options.table:
        print(table(), end="")
        return 0
    count = 0
    os.environ["BARNABAS_PASSWORD"] = PASSWORD
    sys.stdin = open(os.devnull)  # noqa: SIM115 (as long as the process)
    for name in options.brokers or _brokers():
        with _brokers()[name]() as side, tempfile.TemporaryDirectory(prefix="commands-") as directory:
            trial = Trial(name, side, Path(directory))
            tried = failed = 0
            try:
                for row in rows():
                    failure = trial.failure(row)
                    tried += not row.is_preparation
                    failed += bool(failure)
                    if failure or options.verbose:
                        print(f"{name}: barnabas {row.ours}: {failure or 'as it has to'}", flush=True)
            finally:
                trial.close()
            print(f"{name}: {tried} commands, {failed} not as they have to", flush=True)
            count += failed
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
