"""Static members of a streams group, with the consumer of Kafka 4.4: python -m compat.streams.static [--against HOST:PORT].

Kafka Streams 4.3 refuses `group.instance.id` and a broker of 4.3 does too; 4.4 takes it. The exit code is 1 when a member
that comes back does not find its tasks, or when others have to give up theirs meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from compat.kafka.process import LIGHT_JVM
from compat.kit.java import built
from compat.kit.sides import Side
from compat.matrix.brokers import Barnabas, Broker, Given

SETTINGS = {
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
}
GROUP = "of-statics"
WAIT_S = 60


class WrongError(Exception):
    """Something is not as it must be; the message says what."""


class Member:
    """One member in a process of its own."""

    def __init__(self, class_path: str, bootstrap: str, process_id: uuid.UUID, instance_id: str) -> None:
        command = ["java", *LIGHT_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*command, "Members", bootstrap, GROUP, str(process_id), instance_id],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines += [line.strip()]

    def wait_tasks(self, count: int) -> str:
        """The tasks that it has last been given, once they are so many. Raises WrongError."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            last = self.lines[-1] if self.lines else ""
            numbers = last.removeprefix("tasks [").rstrip("]").split(", ")
            if last.startswith("tasks [") and len([number for number in numbers if number]) == count:
                return last
            time.sleep(0.1)
        raise WrongError(f"a member does not come to {count} tasks but says {self.lines}")

    def wait_said(self, line: str) -> None:
        """Until it has said this. Raises WrongError."""
        deadline = time.monotonic() + WAIT_S
        while line not in self.lines:
            if time.monotonic() > deadline:
                raise WrongError(f"a member never says {line!r} but {self.lines}")
            time.sleep(0.1)

    def end(self, how: str) -> None:
        """`pause` or `leave`. Raises WrongError."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise WrongError(f"a member does not {how}") from None


def run_members(class_path: str, bootstrap: str) -> None:
    """A static member goes for a while and comes back; then it leaves for good. Raises WrongError."""
    side = Side("", int(bootstrap.rpartition(":")[2]))

    def group() -> tuple[int, set[str]]:
        with side.connect() as connection:
            groups = connection.ask("StreamsGroupDescribe", 0, {"GroupIds": [GROUP]})["Groups"][0]
        return groups["GroupEpoch"], {str(member["InstanceId"]) for member in groups["Members"]}

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("words", 4, 1)])["words"].result(30)
    places = {name: uuid.uuid4() for name in ("left", "right")}
    members = {name: Member(class_path, bootstrap, place, name) for name, place in places.items()}
    try:
        tasks = {name: member.wait_tasks(2) for name, member in members.items()}
        epoch, names = group()
        print(f"epoch {epoch}, {sorted(names)}: {tasks}")
        line_count = len(members["left"].lines)
        members["right"].end("pause")
        members["right"] = Member(class_path, bootstrap, places["right"], "right")
        back = members["right"].wait_tasks(2)
        print(f"epoch {group()[0]}: back with {back}")
        if back != tasks["right"] or group() != (epoch, names):
            raise WrongError(f"{back} in {group()} where {tasks['right']} in {(epoch, names)} was")
        if len(members["left"].lines) != line_count:
            raise WrongError(f"the other member had to move: {members['left'].lines[line_count:]}")
        double = members["double"] = Member(class_path, bootstrap, places["right"], "right")
        double.wait_said("failed UnreleasedInstanceIdException")
        print(f"who uses its instance id beside it: {double.lines}")
        members["right"].end("leave")
        print(f"left alone: {members['left'].wait_tasks(4)}")
    finally:
        for member in members.values():
            member.process.kill()
            member.process.wait()


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.streams.static", description=__doc__)
    parser.add_argument("--against", metavar="HOST:PORT", help="a broker that runs already")
    options = parser.parse_args()
    class_path = built(Path(__file__).resolve().parent / "members", "members")
    with tempfile.TemporaryDirectory(prefix="barnabas-static-") as directory:
        broker: Broker = Given(options.against) if options.against else Barnabas(Path(directory), SETTINGS)
        broker.start()
        try:
            run_members(class_path, broker.bootstrap)
        except WrongError as error:
            print(f"FAIL {error}")
            return 1
        finally:
            broker.stop()
    print("PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
