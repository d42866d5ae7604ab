"""Fixture of a scenario on one broker: topics, sent words, instances, and observations of the group.

The rule: observations must be equal on both brokers, so they contain neither random values nor timing.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.kafka import release
from compat.kafka.tools import tool_command
from compat.kit.sides import Side
from compat.kit.wire import Values
from compat.streams.instances import Instance, InstanceError

WAIT_S = 90.0
QUIET_S = 1.5
"""Time that a group must stay as it is to count as settled: three heartbeats."""
GROUP = 32
SET = 0
_NOT_COMPARED = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|127\.0\.0\.1:\d+"), "*"),  # process ids, addresses
    (re.compile(r"(?<!\S)[\w-]{22}(?!\S)"), "*"),  # member ids
    (re.compile(r"instance-\d+"), "instance-*"),
    (re.compile(r"(?<!\S)\d+(?!\S)"), "*"),  # epochs and offsets
    (re.compile(r"Exception: .*"), "Exception"),  # words for people
)
Task = tuple[str, str, int]
ROLES = ("ActiveTasks", "StandbyTasks", "WarmupTasks")


@dataclass
class ApplicationFixture:
    """One scenario on one broker. `notes` has the observations to compare."""

    side: Side
    scenario: str
    class_path: str
    directory: Path
    notes: list[tuple[str, Any]] = field(default_factory=list)
    instances: dict[int, Instance] = field(default_factory=dict)
    before: dict[Task, int] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.side.port}"

    def note(self, label: str, value: Any) -> None:
        """Record an observation."""
        self.notes.append((label, value))

    # --- what there is --------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    def forget(self) -> None:
        """Delete all topics except internal ones."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
        for gone in admin.delete_topics(names).values() if names else ():
            gone.result(30)

    def configure(self, **settings: str) -> None:
        """Set settings of the group; underscores stand for dots."""
        configs = [
            {"Name": name.replace("_", "."), "ConfigOperation": SET, "Value": value}
            for name, value in settings.items()
        ]
        resource = {"ResourceType": GROUP, "ResourceName": self.scenario, "Configs": configs}
        with self.side.connect() as connection:
            answer = connection.ask("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        self.note("configured", [response["ErrorCode"] for response in answer["Responses"]])

    def send(self, topic: str, pairs: list[tuple[str, str]]) -> None:
        """Send keys and values, each acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for key, value in pairs:
            producer.produce(topic, value, key)
        if producer.flush(60):
            raise InstanceError("the words could not be sent")

    def words(self, count: int) -> None:
        """Send as many words, of sixteen, in turn."""
        words = [f"word-{number % 16}" for number in range(count)]
        self.send("words", [(f"key-{number % 5}", word) for number, word in enumerate(words)])
        self.sent.update(words)

    # --- instances ------------------------------------------------------------------------------------------

    def start(self, number: int, program: str = "words", **options: Any) -> Instance:
        """Start an instance, or start it again in its directory."""
        instance = self.instances.get(number) or Instance(
            self.class_path, program, self.bootstrap, self.scenario, number, self.directory, **options
        )
        self.instances[number] = instance
        instance.start()
        return instance

    def end(self) -> None:
        """Kill all instances."""
        for instance in self.instances.values():
            instance.kill()

    # --- observations ---------------------------------------------------------------------------------------

    def described(self) -> Values:
        """The group, by StreamsGroupDescribe."""
        with self.side.connect() as connection:
            groups: Values = connection.ask("StreamsGroupDescribe", 0, {"GroupIds": [self.scenario]})[
                "Groups"
            ][0]
        return groups

    def settled(self, members: int) -> Values:
        """Return the description of the group once it is stable with `members` members. Raises InstanceError."""
        deadline = time.monotonic() + WAIT_S
        last, since, group = "", time.monotonic(), self.described()
        while time.monotonic() < deadline:
            group = self.described()
            if repr(group) != last:
                last, since = repr(group), time.monotonic()
            here = group["GroupState"] in ("Stable", "Empty") and len(group["Members"]) == members
            if here and time.monotonic() - since > QUIET_S:
                return group
            time.sleep(0.25)
        raise InstanceError(f"{self.scenario}: no agreement of {members} members: {group}")

    def see(self, label: str, members: int) -> None:
        """Record the number of tasks of each member and instance, and of tasks moved from remaining members.

        Which tasks those are, and which of equals has more, depends on process ids, and these are random.
        """
        group = self.settled(members)
        active, copies, of_instance, agreed = [], 0, Counter[int](), True
        now: dict[Task, int] = {}
        for member in group["Members"]:
            number = int(member["ClientId"].split("-")[1])
            has, wants = _tasks(member["Assignment"]), _tasks(member["TargetAssignment"])
            now |= dict.fromkeys(has, number)
            active.append(sum(role == ROLES[0] for role, _, _ in has))
            copies += len(has) - active[-1]
            of_instance[number] += len(has)
            agreed = agreed and has == wants
        moved = [
            task for task, number in self.before.items()
            if task[0] == "ActiveTasks" and now.get(task) != number and number in self._alive()
        ]  # fmt: skip
        self.before = now
        self.note(f"{label}: state", group["GroupState"])
        self.note(f"{label}: epochs agree", group["GroupEpoch"] == group["AssignmentEpoch"])
        self.note(f"{label}: members have what they are to have", agreed)
        self.note(f"{label}: active tasks of each member", sorted(active))
        self.note(f"{label}: copies in all", copies)
        self.note(f"{label}: tasks of each instance", sorted(of_instance.values()))
        self.note(f"{label}: moved from members that stay", len(moved))

    def _alive(self) -> set[int]:
        return {number for number, instance in self.instances.items() if instance.process is not None}

    def see_topology(self) -> None:
        """Note the topology with its internal topics."""
        self.note("topology", self.described()["Topology"])

    def counts(self, expected: int) -> dict[str, int]:
        """Return the last count of each text, once the counts sum to `expected`. Raises InstanceError."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "auditor",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        partitions = consumer.list_topics("counts", timeout=30).topics["counts"].partitions
        consumer.assign([TopicPartition("counts", number, 0) for number in partitions])
        last: dict[str, int] = {}
        deadline = time.monotonic() + WAIT_S
        while sum(last.values()) < expected and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                if not message.error():
                    text, count = (message.key() or b"").decode(), int(message.value() or b"0")
                    if count != last.get(text, 0) + 1:
                        self.note(f"count of {text} out of its order", (last.get(text, 0), count))
                    last[text] = count
        consumer.close()
        return dict(sorted(last.items()))

    def see_tool(self, *arguments: str) -> None:
        """Note what kafka-streams-groups prints, without what is random or depends on the pace. Raises InstanceError."""
        command = tool_command(
            release("4.x"), "streams-groups", "--bootstrap-server", self.bootstrap, *arguments
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
        lines = [
            " ".join(line.split())
            for line in (done.stdout + done.stderr).splitlines()
            if line.strip() and not line.strip().startswith("at ")
        ]
        for pattern, instead in _NOT_COMPARED:
            lines = [pattern.sub(instead, line) for line in lines]
        self.note(" ".join(arguments), [done.returncode, *sorted(lines)])

    def see_counts(self) -> None:
        """Note what has been counted of all that was sent."""
        self.note("counts", self.counts(self.sent.total()))

    def see_queries(self, keys: list[str]) -> None:
        """Note whether each key is where all instances say that it is, and how much each instance is said to read."""
        alive = [self.instances[number] for number in sorted(self._alive())]
        deadline = time.monotonic() + WAIT_S
        while True:
            told = [instance.ask("where " + " ".join(keys)) for instance in alive]
            local = {instance.number: _entries(instance.ask("local")) for instance in alive}
            homes = {line.split()[1]: int(line.split()[2]) for line in told[0] if line.startswith("where ")}
            right = len(homes) == len(keys) and all(key in local.get(home, ()) for key, home in homes.items())
            if (right and all(answer == told[0] for answer in told)) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        self.note("all instances say the same of where keys are", all(answer == told[0] for answer in told))
        self.note("keys are where they are said to be", right)
        self.note("standbys of keys", sorted({line.count(",") + 1 - line.count("[]") for line in told[0]}))
        self.note("partitions by host", sorted(line.split(" ", 2)[2] for line in alive[0].ask("clients")))


def _tasks(assignment: Values) -> set[Task]:
    return {
        (role, task["SubtopologyId"], n)
        for role in ROLES
        for task in assignment[role]
        for n in task["Partitions"]
    }


def _entries(lines: list[str]) -> dict[str, str]:
    return dict(line.removeprefix("local ").split("\t", 1) for line in lines if line.startswith("local "))
