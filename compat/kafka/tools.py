"""Kafka's command line tools by their usual names, without the scripts of its distribution.

The rule: a name here is the name of the script in `bin/` without `kafka-` and `.sh`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Timer
from types import TracebackType

from compat.kafka.process import java_command
from compat.kafka.releases import KafkaError, Release

RUNNER = Path(__file__).parent / "ToolRunner.java"
SEPARATOR = "\x1f"
ANSWER = b"\x1e"
TOOLS_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# Classes of the tools in Kafka 4; those with other names in older releases are below.
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
ALIASES = {"producer-perf": "producer-perf-test", "consumer-perf": "consumer-perf-test"}
TOOLS_BEFORE_4_4 = {"configs": "kafka.admin.ConfigCommand"}
TOOLS_3_9 = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "dump-log": "kafka.tools.DumpLogSegments",
}


def tool_class(release: Release, name: str) -> str:
    """The class of a tool; `name` may also be one. Raises KafkaError."""
    name = ALIASES.get(name, name)
    main = TOOLS.get(name, name if "." in name else "")
    if tuple(map(int, release.name.split("."))) < (4, 4):
        main = TOOLS_BEFORE_4_4.get(name, main)
    if release.line == "3.9":
        main = TOOLS_3_9.get(name, main)
    if not main:
        raise KafkaError(f"no such tool: {name!r}; there are {', '.join(sorted(TOOLS))}")
    return main


def tool_command(release: Release, name: str, *arguments: str) -> list[str]:
    """The command line of a tool; `name` may also be a class. Raises KafkaError."""
    return java_command(release, tool_class(release, name), *arguments, options=TOOLS_JVM)


def run_tool(release: Release, name: str, *arguments: str) -> int:
    """Run a tool on this terminal; returns its exit code. Raises KafkaError."""
    sys.stdout.flush()
    return subprocess.run(tool_command(release, name, *arguments), check=False).returncode


class ToolProcess:
    """Tools that run one after the other in one JVM, for callers of many of them: a context manager."""

    def __init__(self, release: Release, *, timeout_s: float = 120) -> None:
        self._release = release
        self._timeout_s = timeout_s

    def __enter__(self) -> ToolProcess:
        """Start the JVM. Raises KafkaError."""
        command = java_command(self._release, str(RUNNER), options=TOOLS_JVM)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run a tool: (exit code, what it has written). Raises KafkaError, also when it takes too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = SEPARATOR.join((tool_class(self._release, name), *arguments))
        assert "\n" not in line
        too_long = Timer(self._timeout_s, self._process.kill)
        too_long.start()
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
            answer = b" "
            while answer and ANSWER not in answer:  # what a tool has left behind may write lines, too
                answer = self._process.stdout.readline()
            code, _, size = answer.rpartition(ANSWER)[2].decode().partition(" ")
            text = self._process.stdout.read(int(size or 0)).decode()
        except BrokenPipeError:
            code = ""
        finally:
            too_long.cancel()
        if not code:
            raise KafkaError(f"{name} {' '.join(arguments)}: its JVM has ended, or took {self._timeout_s} s")
        return int(code), text
