"""Kafka's tools, run at a broker of Kafka's and at one of ours in one quorum: for `parity`.

The rule: the output of a tool is compared line by line, in any order, without addresses, times and the side's own word.
"""

from __future__ import annotations

import re
import time

from compat.cluster.parity_cluster import KAFKAS, OF_OURS, SIDE
from compat.cluster.quorum_peers import QuorumPeers
from compat.kafka import ToolProcess, release
from compat.kit.known import Difference

TOOLS: tuple[tuple[str, str], ...] = (
    ("topics", "--list"), ("topics", "--describe"), ("topics", "--describe --topic both"),
    ("topics", "--describe --under-replicated-partitions"), ("topics", "--describe --unavailable-partitions"),
    ("topics", "--describe --under-min-isr-partitions"), ("topics", "--describe --at-min-isr-partitions"),
    ("topics", "--describe --topics-with-overrides"), ("topics", "--describe --topic nowhere"),
    ("topics", "--create --topic SIDE-tool --partitions 2 --replication-factor 2 --config retention.ms=9"),
    ("topics", "--create --topic SIDE-tool"), ("topics", "--create --topic SIDE-tool --if-not-exists"),
    ("topics", "--create --topic SIDE-bad --partitions 0"), ("topics", "--create --topic SIDE-bad --replication-factor 9"),
    ("topics", "--create --topic SIDE-ids --replica-assignment 4:5,5:4"),
    ("topics", "--alter --topic SIDE-tool --partitions 3"), ("topics", "--alter --topic SIDE-tool --partitions 1"),
    ("topics", "--describe --topic SIDE-ids"), ("topics", "--delete --topic SIDE-tool"),
    ("topics", "--delete --topic SIDE-tool"), ("topics", "--delete --topic SIDE-ids"),
    ("configs", "--describe --all --entity-type topics --entity-name both"),
    ("configs", "--describe --entity-type topics"), ("configs", "--describe --entity-type brokers"),
    ("configs", "--describe --entity-type brokers --entity-default"),
    ("configs", "--describe --entity-type brokers --entity-name OWN"),
    ("configs", "--describe --entity-type users"), ("configs", "--describe --entity-type users --entity-name bob"),
    ("configs", "--describe --entity-type users --entity-default"), ("configs", "--describe --entity-type clients"),
    ("configs", "--describe --entity-type ips"), ("configs", "--describe --entity-type client-metrics"),
    ("configs", "--describe --entity-type groups"), ("configs", "--describe --entity-type groups --entity-name g --all"),
    ("configs", "--describe --entity-type broker-loggers --entity-name 99"),
    ("configs", "--alter --entity-type topics --entity-name many --add-config retention.ms=77"),
    ("configs", "--alter --entity-type topics --entity-name many --delete-config retention.ms"),
    ("configs", "--alter --entity-type topics --entity-name many --add-config no.such=1"),
    ("configs", "--alter --entity-type topics --entity-name nowhere --add-config retention.ms=1"),
    ("configs", "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2"),
    ("configs", "--alter --entity-type brokers --entity-name OWN --add-config log.cleaner.threads=2"),
    ("configs", "--alter --entity-type brokers --entity-name OWN --delete-config log.cleaner.threads"),
    ("configs", "--alter --entity-type users --entity-name SIDE --add-config SCRAM-SHA-256=[password=x]"),
    ("configs", "--alter --entity-type users --entity-name SIDE --add-config producer_byte_rate=77"),
    ("configs", "--describe --entity-type users --entity-name SIDE"),
    ("configs", "--alter --entity-type users --entity-name SIDE --delete-config SCRAM-SHA-256"),
    ("configs", "--alter --entity-type users --entity-name SIDE --delete-config producer_byte_rate"),
    ("acls", "--list"), ("acls", "--list --topic both"),
    ("acls", "--add --allow-principal User:SIDE --producer --topic SIDE-acl"), ("acls", "--list --principal User:SIDE"),
    ("acls", "--remove --force --allow-principal User:SIDE --producer --topic SIDE-acl"),
    ("metadata-quorum", "describe --status"), ("metadata-quorum", "describe --replication"),
    ("metadata-quorum", "remove-controller --controller-id 99 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ"),
    ("features", "describe"), ("features", "upgrade --feature transaction.version=2"),
    ("features", "upgrade --feature no.such=2"), ("features", "downgrade --feature transaction.version=1 --dry-run"),
    ("features", "disable --feature group.version --dry-run"), ("features", "upgrade --release-version 4.3"),
    ("cluster", "cluster-id"), ("cluster", "list-endpoints"), ("cluster", "list-endpoints --include-fenced-brokers"),
    ("cluster", "unregister --id 99"), ("log-dirs", "--describe --topic-list many"),
    ("log-dirs", "--describe --broker-list 4 --topic-list many"), ("log-dirs", "--describe --broker-list 99"),
    ("reassign-partitions", "--list"),
    ("reassign-partitions", "--execute --reassignment-json-file MOVE"),
    ("reassign-partitions", "--verify --reassignment-json-file MOVE"),
    ("leader-election", "--election-type preferred --topic both --partition 0"),
    ("leader-election", "--election-type preferred --topic nowhere --partition 0"),
    ("leader-election", "--election-type unclean --topic gone --partition 0"),
    ("client-metrics", "--list"), ("client-metrics", "--describe"), ("client-metrics", "--describe --name slow"),
    ("client-metrics", "--alter --name SIDE --metrics a,b --interval 1000"), ("client-metrics", "--describe --name SIDE"),
    ("client-metrics", "--delete --name SIDE"), ("client-metrics", "--delete --name nowhere"),
    ("delegation-tokens", "--describe"), ("groups", "--list"), ("transactions", "list"),
    ("broker-api-versions", ""),
)  # fmt: skip

READS = ("--list", "--describe", "describe", "list")


def tools(peers: QuorumPeers) -> tuple[list[Difference], int]:
    """Run Kafka's tools at both brokers; returns the differences, and the number of commands."""
    move = '{"version":1,"partitions":[{"topic":"many","partition":0,"replicas":[4]}]}'
    (peers.directory / "MOVE.json").write_text(move)
    differences = []
    with ToolProcess(release(peers.cluster.version)) as process:
        for tool, words in TOOLS:
            give_up = time.monotonic() + (10 if words.startswith(READS) or " --describe" in words else 0)
            while True:
                outputs = [_run(process, peers, broker_id, tool, words) for broker_id in (KAFKAS, OF_OURS)]
                if outputs[0] == outputs[1] or time.monotonic() > give_up:
                    break
                time.sleep(1)
            if outputs[0] != outputs[1]:
                only = [sorted(set(outputs[n]) - set(outputs[1 - n])) for n in (0, 1)]
                if not any(only):
                    only = outputs
                differences.append(
                    Difference(f"kafka-{tool} {words}", "", only[0], only[1], whole=(outputs[0], outputs[1]))
                )
    return differences, len(TOOLS)


NUMBERS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"\[\d{4}-[^\]]*\]"), "[TIME]"),
    (re.compile(r"(Epoch|FinalizedVersionEpoch): ?\d+"), r"\1: N"),
    (re.compile(r"TopicId: \S{22}"), "TopicId: ID"),
)
MOVING = re.compile(r"^(HighWatermark|MaxFollowerLag\w*|LeaderEpoch):")


def _run(process: ToolProcess, peers: QuorumPeers, broker_id: int, tool: str, words: str) -> list[str]:
    word = {KAFKAS: "kafkas-side", OF_OURS: "our-side"}[broker_id]
    where = ["--bootstrap-server", f"127.0.0.1:{peers.users[broker_id]}"]
    login = ["--config" if tool == "cluster" else "--admin.config" if tool == "leader-election" else "--command-config",
             str(peers.admin)]  # fmt: skip
    own = [
        {"OWN": str(broker_id), "MOVE": str(peers.directory / "MOVE.json")}.get(
            part, part.replace(SIDE, word)
        )
        for part in words.split()
    ]
    arguments = [own[0], *where, *login, *own[1:]] if tool == "cluster" else [*where, *login, *own]
    code, text = process.run(tool, *arguments)
    for pattern, form in NUMBERS:
        text = pattern.sub(form, text)
    text = text.replace(word, SIDE).replace(where[1], "ADDRESS")
    if "OWN" in words:
        text = re.sub(rf"\bbroker {broker_id}\b", "broker OWN", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if tool == "metadata-quorum":
        lines = [
            line if not line[:1].isdigit() else " ".join(line.split()[:2])
            for line in lines
            if not MOVING.match(line)
        ]
    return [
        f"exit code {code}",
        *sorted(line for line in lines if line and not line.startswith("at ") and "\tat " not in line),
    ]
