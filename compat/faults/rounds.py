"""Rounds of random faults under load, from a seed, and the checks between and after them."""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic

from compat.cluster.load import QUICK
from compat.cluster.nodes import ClusterError, wait_until
from compat.faults.clients import (
    PARTITIONS,
    REQUEST_MS,
    Acknowledging,
    FranzGo,
    Java,
    Librdkafka,
    PlainLibrdkafka,
    Reader,
)
from compat.faults.faults import (
    AFTER_KINDS,
    BY_NAME,
    HANGING_KINDS,
    IN_SYNC_S,
    KINDS,
    NEEDS_FAILING_DISKS,
    Fault,
)
from compat.faults.hosts import is_root
from compat.faults.machines import FaultyCluster
from compat.faults.pauses import Pauses, table
from compat.faults.verdict import broken_promises, compare_replicas, lost_reads, read

PRODUCERS: dict[str, type[Acknowledging]] = {
    "librdkafka": Librdkafka,
    "librdkafka-plain": PlainLibrdkafka,
    "java": Java,
    "franz-go": FranzGo,
}
STAYING = {"franz-go"}
"""Clients that dial a broker that hangs again and again, and look for another leader only when it answers."""
RESUMED_S = 30.0
QUIET_S = (0.2, 1.0)


class Rounds:
    """One run. `run` returns the broken guarantees; `figures` gets a line of JSON for each round."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        kinds: list[str],
        rate: int,
        figures: Path | None,
        resume_within_s: float = 0.0,
    ) -> None:
        """`resume_within_s`: how soon after the end of a session clients must have gone on, and their own request time-out
        later where a broker hangs; 0 for any time."""
        self._directory = directory
        self._random = Random(seed)
        self._seed = seed
        possible = [kind for kind in KINDS if is_root() or kind not in NEEDS_FAILING_DISKS]
        drawn = [kind for kind in possible if kind not in BY_NAME]
        self._kinds = [kind for kind in kinds or drawn if kind in possible]
        self._rate = rate
        self._figures = figures
        self._resume_within_s = resume_within_s
        self._pauses: dict[str, list[Pauses]] = defaultdict(list)
        self._late: list[str] = []
        self._acknowledged = 0

    def run(self, count: int, seconds: float) -> list[str]:
        """Raises ClusterError, BrokerError, TimeoutError."""
        begun = time.monotonic()
        with FaultyCluster(self._directory) as cluster:
            admin = AdminClient({**QUICK, "bootstrap.servers": cluster.bootstrap})
            topics = [NewTopic(name, PARTITIONS, 3) for name in PRODUCERS]
            for created in admin.create_topics(topics).values():
                created.result(30)
            producers = [
                make(name, cluster.bootstrap, self._rate, self._directory) for name, make in PRODUCERS.items()
            ]
            reader = Reader(cluster.bootstrap, list(PRODUCERS))
            clients: list[Acknowledging | Reader] = [*producers, reader]
            for client in clients:
                client.start()
            for producer in producers:
                wait_until(
                    lambda producer=producer: bool(producer.acknowledged) or bool(producer.errors),
                    f"{producer.topic} begins", lambda producer=producer: str(producer.errors), seconds=120,
                )  # fmt: skip
            cluster.wait_in_sync(IN_SYNC_S)
            try:
                for number in range(count):
                    if seconds and time.monotonic() - begun > seconds:
                        break
                    self._round(cluster, producers, number)
            finally:
                self._keep_logs(cluster)
            for client in clients:
                client.stop()
            return self._verdict(cluster, producers, reader)

    def _round(self, cluster: FaultyCluster, producers: list[Acknowledging], number: int) -> None:
        random = self._random
        name = random.choice(self._kinds)
        broker_id = self._victim(cluster, random.choice(("leader", "controller", "any")))
        time.sleep(random.uniform(*QUIET_S))
        fault = Fault(cluster, random, cluster.brokers[broker_id])
        begun = time.monotonic()
        note = KINDS[name](fault)
        over = time.monotonic()
        in_sync = cluster.wait_in_sync(IN_SYNC_S)
        self._wait_resumed(producers)
        pauses = self._measured(cluster, producers, name, broker_id, begun, over)
        self._pauses[name].append(pauses)
        resumed = (
            f"; the session ended after {pauses.session_s:.1f} s, resumed after it "
            + ", ".join(f"{client} {pause:.1f} s" for client, pause in pauses.resumed.items())
            if pauses.session_s is not None and pauses.resumed is not None
            else ""
        )
        print(
            f"{number + 1:3} {name} broker {broker_id}: {note}; in sync {in_sync:.1f} s later; longest pauses "
            + ", ".join(f"{client} {pause:.1f} s" for client, pause in pauses.longest.items())
            + resumed,
            flush=True,
        )
        within_s = self._resume_within_s + (REQUEST_MS / 1000 if name in HANGING_KINDS else 0.0)
        late = pauses.late(within_s) if self._resume_within_s else {}
        if name in HANGING_KINDS:
            late = {client: pause for client, pause in late.items() if client not in STAYING}
        self._late += [
            f"{client} went on {pause:.1f} s after the end of the session in round {number + 1} ({name}), "
            f"not within {within_s:g} s"
            for client, pause in late.items()
        ]
        if self._figures is not None:
            line = {
                "seed": self._seed, "round": number, "kind": name, "said": note, "pauses": pauses.longest,
                "session_s": pauses.session_s, "resumed": pauses.resumed,
            }  # fmt: skip
            with self._figures.open("a") as figures:
                figures.write(json.dumps({**line, "in_sync_s": round(in_sync, 2)}) + "\n")
        for producer in producers:
            if producer.errors:
                raise ClusterError(f"{producer.topic}: {producer.errors[0]} in round {number + 1} ({name})")

    @staticmethod
    def _measured(
        cluster: FaultyCluster,
        producers: list[Acknowledging],
        name: str,
        broker_id: int,
        begun: float,
        over: float,
    ) -> Pauses:
        longest = {producer.topic: round(producer.longest_pause(begun, over), 2) for producer in producers}
        gone_at = cluster.registrations.gone_at(broker_id, begun) if name in AFTER_KINDS else None
        if gone_at is None:
            return Pauses(longest)
        resumed = {producer.topic: round(producer.resumed_after(gone_at), 2) for producer in producers}
        return Pauses(longest, round(gone_at - begun, 2), resumed)

    def _victim(self, cluster: FaultyCluster, role: str) -> int:
        """Choose a broker: the one with the most leaders, the controller, or any."""
        any_broker = self._random.choice(list(cluster.brokers))
        if role == "controller":
            return max(cluster.controller(), 0) or any_broker
        if role == "leader":
            return max(cluster.brokers, key=lambda broker_id: len(cluster.led_by(broker_id, set(PRODUCERS))))
        return any_broker

    def _wait_resumed(self, producers: list[Acknowledging]) -> None:
        """Wait until each producer has an acknowledgement from each partition again. Raises ClusterError."""
        now = time.monotonic()
        for producer in producers:

            def silent(producer: Acknowledging = producer) -> list[int]:
                return [
                    index
                    for index in range(PARTITIONS)
                    if not producer.times[index] or producer.times[index][-1] < now
                ]

            wait_until(
                lambda silent=silent, producer=producer: not silent() or bool(producer.errors),
                f"{producer.topic} goes on",
                lambda silent=silent: f"nothing from partitions {silent()}",
                seconds=RESUMED_S,
            )

    def _keep_logs(self, cluster: FaultyCluster) -> None:
        """Copy the state of the partitions, for the analysis of a failure: disks go with the namespaces."""
        if self._figures is None:
            (self._directory / "states.json").write_text(json.dumps(cluster.states(), default=str, indent=1))

    def _verdict(self, cluster: FaultyCluster, producers: list[Acknowledging], reader: Reader) -> list[str]:
        cluster.wait_in_sync(IN_SYNC_S)
        print("\n".join(table(self._pauses)))
        broken = [*self._late, *(f"reader: {text}" for text in reader.errors)]
        records = 0
        for producer in producers:
            values = read(cluster.bootstrap, producer.topic)
            records += len(values)
            self._acknowledged += len(producer.acknowledged)
            broken += broken_promises(producer, values) + lost_reads(reader, producer.topic, values)
        if not reader.seen:
            broken.append("the reader has read nothing")
        partitions = compare_replicas(cluster, PRODUCERS)
        for broker_id, broker in cluster.brokers.items():
            tracebacks = [line for line in broker.complaints() if "Traceback" in line or "CRITICAL" in line]
            if tracebacks:
                broken.append(f"broker {broker_id} has logged {len(tracebacks)} tracebacks: {tracebacks[0]}")
        if broken:
            for broker_id, broker in cluster.brokers.items():
                for number, log_dir in enumerate(broker.log_dirs):
                    shutil.copytree(
                        log_dir, self._directory / f"failed-{broker_id}-{number}", dirs_exist_ok=True
                    )
        print(f"{records} records, {partitions} partitions identical on all brokers, {len(reader.seen)} read")
        return broken

    def summary(self) -> str:
        """The figures: rounds and longest pauses of each kind."""
        parts = [
            f"{kind} {len(pauses)} (longest pause {max(max(pause.longest.values()) for pause in pauses):.1f} s)"
            for kind, pauses in sorted(self._pauses.items())
        ]
        return f"{self._acknowledged} acknowledged; " + ", ".join(parts)
