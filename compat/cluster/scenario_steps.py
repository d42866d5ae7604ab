"""Changes of a cluster, and their outcomes: for `scenarios`.

The rule: a scenario restores the cluster, except for its own topics.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from compat.cluster.load import QUICK, Load, check, read_all
from compat.cluster.logs import compare, log_of
from compat.cluster.nodes import ClusterError, wait_until
from compat.cluster.parity_tools import NUMBERS
from compat.cluster.quorum_nodes import CONTROLLER_SETTINGS, QuorumCluster
from compat.faults.hosts import Disk
from compat.kafka import ToolProcess
from compat.kit.wire import Connection, Values
from compat.matrix.brokers import BrokerError
from compat.metadata.quorum import Node

RECORD_BYTES = 1000
RECORDS = 2000
"""Number of records in each partition that is moved: 2 MB."""
THROTTLE = 400_000
"""Bytes per second of replication while partitions move: some seconds for the partitions that a broker leads."""
STOPPED = 20
"""Bytes per second at which a move makes no progress."""
PARTITIONS = 6
RESUMED = 1000
GONE_S = 120.0
"""Time until the log of a moved replica is removed: the delay of deletion is a minute."""
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A cluster, a JVM for Kafka's tools, and the disks of each broker: two for log dirs, one for the metadata."""

    cluster: QuorumCluster
    process: ToolProcess
    disks: Mapping[int, Sequence[Disk]]

    @property
    def broker_ids(self) -> tuple[int, int, int]:
        first, second, third = sorted(self.cluster.kinds)
        return first, second, third

    def tool(self, name: str, *arguments: str) -> list[str]:
        """Run a tool at the brokers; returns its exit code and its lines, sorted, without values of this run alone."""
        where = ["--bootstrap-server", self.cluster.bootstrap]
        words = [arguments[0], *where, *arguments[1:]] if name == "cluster" else [*where, *arguments]
        code, text = self.process.run(name, *words)
        for pattern, form in NUMBERS:
            text = pattern.sub(form, text)
        for broker_id, node in self.cluster.nodes.items():
            text = text.replace(node.bootstrap, f"BROKER-{broker_id}")
        text = re.sub(r'"log_dirs":\[[^\]]*\]', '"log_dirs":[...]', text)
        lines = (" ".join(line.split()) for line in text.splitlines())
        return [f"exit code {code}", *sorted(line for line in lines if line and not line.startswith("at "))]

    def create(self, topic: str, replicas: Sequence[Sequence[int]], records: int = RECORDS) -> None:
        """Make a topic with these replicas, and records in each partition. Raises ClusterError."""
        assignment = ",".join(":".join(map(str, ids)) for ids in replicas)
        config = ("--config", "min.insync.replicas=1", "--config", "file.delete.delay.ms=1000")
        self.tool("topics", "--create", "--topic", topic, "--replica-assignment", assignment, *config)
        self.cluster.wait_in_sync(topic, len(replicas[0]))
        errors: list[Any] = []
        producer = Producer({**QUICK, "bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for number in range(records * len(replicas)):
            value = b"%d " % number + bytes(RECORD_BYTES)
            producer.produce(
                topic,
                value,
                partition=number % len(replicas),
                on_delivery=lambda error, _: errors.append(error),
            )
            producer.poll(0)
        producer.flush(60)
        if any(errors) or len(errors) != records * len(replicas):
            raise ClusterError(f"{topic}: {Counter(map(str, errors))}")

    def plan(self, topic: str, replicas: Sequence[Sequence[int]]) -> tuple[str, str]:
        """Write a plan for kafka-reassign-partitions; returns the option that names it."""
        path = self.cluster.directory / f"{topic}.json"
        partitions = [
            {"topic": topic, "partition": index, "replicas": list(ids)} for index, ids in enumerate(replicas)
        ]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return "--reassignment-json-file", str(path)

    def throttles(self) -> dict[str, dict[str, str]]:
        """Settings of throttles that are committed, by resource."""
        return {
            name or "all brokers": limits
            for (_, name), settings in self.cluster.image().settings.items()
            if (limits := {key: value for key, value in settings.items() if "throttled" in key})
        }

    def holders(self, topic: str) -> list[list[int]]:
        """The brokers that have a log of each partition of a topic on a disk."""
        return [
            [
                broker_id
                for broker_id, node in self.cluster.nodes.items()
                if log_of(node, f"{topic}-{index}").exists()
            ]
            for index in self.cluster.assignment(topic)
        ]

    def asked(self, broker_id: int, api: str, version: int, values: Values) -> Values:
        """Send a request to one broker."""
        host, _, port = self.cluster.nodes[broker_id].bootstrap.partition(":")
        with Connection(host, int(port)) as connection:
            return connection.ask(api, version, values)


def moved(scene: Scene) -> Outcome:
    """Partitions move between all brokers with a throttle, which is raised meanwhile, and goes in the end."""
    first, second, third = scene.broker_ids
    before = [(first, second), (second, third), (third, first), (first, second)]
    after = [(second, third), (third, first), (first, second), (third, second)]
    scene.create("moved", before)
    plan = scene.plan("moved", after)
    begun = time.monotonic()
    outcome: Outcome = {
        "executed": scene.tool("reassign-partitions", *plan, "--execute", "--throttle", str(THROTTLE)),
        "throttles": scene.throttles(),
        "listed": scene.tool("reassign-partitions", "--list"),
        "again": scene.tool("reassign-partitions", *plan, "--execute"),
        "in progress": scene.tool("reassign-partitions", *plan, "--verify"),
    }
    wait_until(
        lambda: scene.cluster.assignment("moved") == {i: list(ids) for i, ids in enumerate(after)},
        "all moved",
    )
    outcome["is throttled"] = time.monotonic() - begun > RECORDS * RECORD_BYTES / THROTTLE
    scene.cluster.wait_in_sync("moved", 2)
    outcome["verified"] = scene.tool("reassign-partitions", *plan, "--verify")
    outcome["throttles afterwards"] = scene.throttles()
    outcome["listed afterwards"] = scene.tool("reassign-partitions", "--list")
    wait_until(
        lambda: scene.holders("moved") == [sorted(ids) for ids in after], "replicas that moved away are gone",
        lambda: str(scene.holders("moved")), GONE_S,
    )  # fmt: skip
    outcome["records"] = [len(values) for values in read_all(scene.cluster.bootstrap, "moved", 4).values()]
    outcome["identical"] = compare(scene.cluster, ["moved"])[0]
    return outcome


def raised(scene: Scene) -> Outcome:
    """A move that is throttled to a standstill ends soon after the throttle is raised."""
    first, second, third = scene.broker_ids
    scene.create("raised", [(first, second)])
    plan = scene.plan("raised", [(second, third)])
    executed = scene.tool("reassign-partitions", *plan, "--execute", "--throttle", str(STOPPED))
    time.sleep(5)
    adding = scene.cluster.adding("raised")
    more = scene.tool(
        "reassign-partitions", *plan, "--execute", "--additional", "--throttle", str(50 * THROTTLE)
    )
    wait_until(lambda: scene.cluster.assignment("raised") == {0: [second, third]}, "the partition has moved")
    scene.cluster.wait_in_sync("raised", 2)
    verified = scene.tool("reassign-partitions", *plan, "--verify")
    records = [len(values) for values in read_all(scene.cluster.bootstrap, "raised", 1).values()]
    return {"executed": executed, "adding": adding, "more": more, "verified": verified, "records": records}


def cancelled(scene: Scene) -> Outcome:
    """Moves are cancelled before they get anywhere: all is as before, and the new replicas are gone."""
    first, second, third = scene.broker_ids
    before = [(first, second), (second, first)]
    scene.create("cancelled", before)
    plan = scene.plan("cancelled", [(third, second), (third, first)])
    outcome: Outcome = {
        "executed": scene.tool("reassign-partitions", *plan, "--execute", "--throttle", str(STOPPED)),
        "adding": scene.cluster.adding("cancelled"),
    }
    wait_until(lambda: third in scene.holders("cancelled")[0], "the new replica has a log")
    outcome["cancelled"] = scene.tool("reassign-partitions", *plan, "--cancel")
    outcome["again"] = scene.tool("reassign-partitions", *plan, "--cancel")
    outcome["assignment"] = scene.cluster.assignment("cancelled")
    outcome["throttles"] = scene.throttles()
    outcome["verified"] = scene.tool("reassign-partitions", *plan, "--verify")
    wait_until(
        lambda: scene.holders("cancelled") == [sorted(ids) for ids in before], "the new replicas are gone",
        lambda: str(scene.holders("cancelled")), GONE_S,
    )  # fmt: skip
    outcome["records"] = [
        len(values) for values in read_all(scene.cluster.bootstrap, "cancelled", 2).values()
    ]
    return outcome


SOFTWARE = {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}
PROBES: Mapping[str, tuple[str, int, Values]] = {
    "group.version": ("ConsumerGroupHeartbeat", 1, {
        "GroupId": "probe", "MemberId": "m", "MemberEpoch": 0, "RebalanceTimeoutMs": 9000, "TopicPartitions": [],
        "SubscribedTopicNames": ["probed"],
    }),
    "share.version": ("ShareGroupHeartbeat", 1, {
        "GroupId": "share", "MemberId": "m", "MemberEpoch": 0, "SubscribedTopicNames": ["probed"],
    }),
    "transaction.version": ("InitProducerId", 5, {"TransactionalId": "t", "TransactionTimeoutMs": 9000}),
}  # fmt: skip
"""Requests with responses that show whether a feature is enabled."""


def features(scene: Scene) -> Outcome:
    """Features are lowered and raised by kafka-features: each broker reports and applies the levels."""
    scene.create("probed", [scene.broker_ids], 1)
    outcome: Outcome = {}
    for change in (
        "downgrade --feature share.version=0", "upgrade --feature share.version=1",
        "downgrade --feature group.version=0", "upgrade --feature group.version=1",
        "downgrade --feature transaction.version=1", "upgrade --feature transaction.version=2",
        "downgrade --feature eligible.leader.replicas.version=0", "upgrade --feature eligible.leader.replicas.version=1",
        "downgrade --feature streams.version=0", "upgrade --feature streams.version=1",
        "upgrade --feature share.version=2", "downgrade --feature kraft.version=0",
        "downgrade --metadata 4.2-IV1", "downgrade --metadata 4.2-IV1 --unsafe", "upgrade --metadata 4.3-IV0",
        "upgrade --release-version 4.3",
    ):  # fmt: skip
        outcome[change] = scene.tool("features", *change.split())
        levels = dict(scene.cluster.image().features)
        outcome[f"levels after {change}"] = {name: int(level) for name, level in levels.items()}

        def told() -> list[dict[str, int]]:
            answers = [scene.asked(broker_id, "ApiVersions", 4, SOFTWARE) for broker_id in scene.broker_ids]
            return [
                {row["Name"]: row["MaxVersionLevel"] for row in answer["FinalizedFeatures"]}
                for answer in answers
            ]

        wait_until(
            lambda: len({str(sorted(row.items())) for row in told()}) == 1,
            "brokers tell the same",
            lambda: str(told()),
        )
        outcome[f"told after {change}"] = told()[0]
        feature = change.partition("--feature ")[2].partition("=")[0]
        if feature in PROBES:
            outcome[f"answered after {change}"] = _codes(scene, *PROBES[feature])
    return outcome


def _codes(scene: Scene, api: str, version: int, values: Values) -> list[int]:
    """Return the error codes that are answered by some broker, once none is about coordinators that move."""
    moving = {14, 15, 16}
    codes: list[set[int]] = [set()]

    def are_settled() -> bool:
        codes[0] = {
            scene.asked(broker_id, api, version, values)["ErrorCode"] for broker_id in scene.broker_ids
        } - {16}
        return bool(codes[0]) and not codes[0] & moving

    scene.asked(scene.broker_ids[0], "FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["t"]})
    scene.asked(
        scene.broker_ids[0], "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["probe", "share"]}
    )
    wait_until(are_settled, f"{api} is answered", lambda: str(codes))
    return sorted(codes[0])


def voters(scene: Scene) -> Outcome:
    """A second controller becomes a voter and stops being one, by kafka-metadata-quorum at the brokers."""
    cluster = scene.cluster
    node = Node(cluster.version, cluster.directory / "controller-2", 2, "controller")
    node.configure({**CONTROLLER_SETTINGS, **cluster.quorum.settings})
    node.format("--no-initial-controllers")
    node.start()
    properties = ("--command-config", str(node.properties))
    outcome: Outcome = {}
    try:
        text = (node.log_dir / "meta.properties").read_text()
        directory_id = re.findall(r"directory\.id=(\S+)", text)[0]

        def shown() -> list[str]:
            lines = scene.tool("metadata-quorum", "describe", "--replication")
            return [" ".join([line.split()[0], line.split()[-1]]) for line in lines if line[0].isdigit()]

        removal = ("remove-controller", "--controller-id", "2", "--controller-directory-id")
        wait_until(lambda: "2 Observer" in shown(), "the new controller is an observer", lambda: str(shown()))
        outcome["removed before"] = _without(
            directory_id, scene.tool("metadata-quorum", *removal, directory_id)
        )

        def is_added() -> bool:
            outcome["added"] = _without(
                directory_id, scene.tool("metadata-quorum", *properties, "add-controller")
            )
            return outcome["added"][0] == "exit code 0"

        wait_until(is_added, "the controller is added, which has to catch up for it", lambda: str(outcome))
        wait_until(lambda: "2 Follower" in shown(), "the new controller is a voter", lambda: str(outcome))
        outcome["shown"] = shown()
        outcome["added again"] = _without(
            directory_id, scene.tool("metadata-quorum", *properties, "add-controller")
        )
        scene.create("voted", [scene.broker_ids], 10)
        outcome["another removed"] = _without(
            directory_id, scene.tool("metadata-quorum", *removal, "AAAAAAAAAAAAAAAAAAAAZA")
        )
        outcome["removed"] = _without(directory_id, scene.tool("metadata-quorum", *removal, directory_id))
        wait_until(
            lambda: "2 Observer" in shown(), "the controller is an observer again", lambda: str(shown())
        )
        outcome["shown afterwards"] = shown()
    finally:
        node.process.stop()
    return outcome


def _without(directory_id: str, lines: list[str]) -> list[str]:
    return [
        re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line.replace(directory_id, "DIRECTORY-ID")) for line in lines
    ]


def unregistered(scene: Scene) -> Outcome:
    """A broker is unregistered while it runs, and while it is down; after a start it returns with its replicas."""
    cluster, broker_id = scene.cluster, scene.broker_ids[2]
    scene.create("left", [scene.broker_ids], 100)
    words = ("cluster", "unregister", "--id", str(broker_id))
    outcome: Outcome = {}
    for moment in ("running", "stopped"):
        if moment == "stopped":
            cluster.nodes[broker_id].stop()
            wait_until(lambda: broker_id not in cluster.live(), "the broker is fenced")
        outcome[f"{moment}: unregistered"] = scene.tool(*words)
        wait_until(lambda: broker_id not in cluster.image().brokers, "the broker is gone")
        outcome[f"{moment}: again"] = scene.tool(*words)
        time.sleep(5)
        state = cluster.states("left")[0]
        outcome[f"{moment}: state"] = {
            "isr": sorted(state["isr"]), "is led": state["leader"] in scene.broker_ids[:2],
            "is registered": broker_id in cluster.image().brokers, "runs": cluster.nodes[broker_id].pid is not None,
            "assignment": cluster.assignment("left"),
        }  # fmt: skip
        if moment == "running":
            cluster.nodes[broker_id].kill()
        cluster.start(broker_id)
        cluster.wait_in_sync("left", 3)
        outcome[f"{moment}: records"] = [
            len(values) for values in read_all(cluster.bootstrap, "left", 1).values()
        ]
    return outcome


def log_dir_broken(scene: Scene) -> Outcome:
    """A disk with a log dir fails every read and write under load; the broker is started again when it is mended."""

    def end(broker_id: int, disk: Disk) -> None:
        scene.cluster.nodes[broker_id].kill()
        disk.mend()

    return _without_a_disk(scene, "broken", 1, Disk.break_down, end)


def log_dir_full(scene: Scene) -> Outcome:
    """A disk with a log dir is full under load; then there is room, and the broker is started again."""

    def end(broker_id: int, disk: Disk) -> None:
        disk.free()
        scene.cluster.nodes[broker_id].stop()

    return _without_a_disk(scene, "full", 1, Disk.fill, end)


def _without_a_disk(
    scene: Scene, topic: str, number: int, begin: Callable[[Disk], None], end: Callable[[int, Disk], None]
) -> Outcome:
    """Make a disk of the second broker fail under load, and return leaders, responses and descriptions meanwhile."""
    cluster, broker_id = scene.cluster, scene.broker_ids[1]
    disk, log_dir = scene.disks[broker_id][number], cluster.nodes[broker_id].log_dirs[number]
    first, second, third = scene.broker_ids
    scene.create(topic, [(second, third, first)] * PARTITIONS, 10)
    outcome: Outcome = {}
    load = Load(cluster.bootstrap, topic, PARTITIONS, rate=1000)
    before = {index: len(values) for index, values in read_all(cluster.bootstrap, topic, PARTITIONS).items()}
    with load:
        wait_until(lambda: len(load.acknowledged) > RESUMED, "the load begins")
        lost = {int(path.name.rpartition("-")[2]) for path in log_dir.glob(f"{topic}-?")}
        begin(disk)
        try:
            wait_until(
                lambda: all(
                    (state["leader"] != broker_id and broker_id not in state["isr"]) == (index in lost)
                    for index, state in cluster.states(topic).items()
                ),
                "others lead what was on the disk, and nothing else", lambda: f"{lost}: {cluster.states(topic)}",
            )  # fmt: skip
            here = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > here + RESUMED, "records are acknowledged")
            outcome["lost"] = len(lost)
            outcome["dirs"] = _dirs(scene, broker_id)
            outcome["registered dirs"] = len(cluster.image().brokers[broker_id].log_dirs)
        finally:
            end(broker_id, disk)
        cluster.start(broker_id)
        cluster.wait_in_sync(topic, 3)
        outcome["dirs afterwards"] = _dirs(scene, broker_id)
    check(load, {i: v[before[i] :] for i, v in read_all(cluster.bootstrap, topic, PARTITIONS).items()})
    outcome["identical"] = compare(cluster, [topic])[0]
    return outcome


def _dirs(scene: Scene, broker_id: int) -> list[tuple[int, bool]]:
    """Return the error code of each log dir that a broker describes, and whether it reports the size."""
    answer = scene.asked(broker_id, "DescribeLogDirs", 4, {"Topics": None})
    return sorted((row["ErrorCode"], row["TotalBytes"] > 0) for row in answer["Results"])


def metadata_dir_full(scene: Scene) -> Outcome:
    """The disk of a broker's metadata is full under load and metadata change; with room it starts, and has all changes."""
    cluster, broker_id = scene.cluster, scene.broker_ids[1]
    disk = scene.disks[broker_id][2]
    scene.create("kept", [scene.broker_ids] * PARTITIONS, 10)
    before = {index: len(values) for index, values in read_all(cluster.bootstrap, "kept", PARTITIONS).items()}
    outcome: Outcome = {}
    load = Load(cluster.bootstrap, "kept", PARTITIONS, rate=1000)
    with load:
        wait_until(lambda: len(load.acknowledged) > RESUMED, "the load begins")
        disk.fill()
        wait_until(lambda: broker_id not in cluster.live(), "the broker is fenced")
        wait_until(
            lambda: all(state["leader"] != broker_id for state in cluster.states("kept").values()),
            "others lead",
        )
        here = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > here + RESUMED, "records are acknowledged")
        scene.create("meanwhile", [(scene.broker_ids[0], scene.broker_ids[2])], 10)
        outcome["has ended"] = not _runs(cluster.nodes[broker_id].pid)
        disk.free()
        with contextlib.suppress(BrokerError):  # it has exited by itself
            cluster.nodes[broker_id].kill()
        cluster.start(broker_id)
        cluster.wait_in_sync("kept", 3)
    check(load, {i: v[before[i] :] for i, v in read_all(cluster.bootstrap, "kept", PARTITIONS).items()})
    wait_until(
        lambda: not scene.asked(broker_id, "Metadata", 12, {"Topics": [{"Name": "meanwhile"}]})["Topics"][0]["ErrorCode"],
        "the broker knows of the topic that was made meanwhile",
    )  # fmt: skip
    outcome["identical"] = compare(cluster, ["kept"])[0]
    return outcome


def _runs(pid: int | None) -> bool:
    """Return whether a process runs; a zombie does not."""
    if pid is None:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


SCENARIOS: dict[str, Callable[[Scene], Outcome]] = {
    scenario.__name__: scenario
    for scenario in (
        moved, raised, cancelled, features, voters, unregistered, log_dir_broken, log_dir_full, metadata_dir_full,
    )
}  # fmt: skip
