"""Our voter and two controllers of Kafka in one quorum: python -m compat.metadata.voters [--version V] [--rounds N]

Static voters, dynamic ones, and ones that join. In each round the leading controller of Kafka is killed until ours leads
and commits records, then ours resigns, and Kafka commits. The exit code is 1 if
a leader does not come, a record is not committed, a controller of Kafka complains, or the logs of the three differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.formatting import FIRST_VOTERS, first_voters_file
from barnabas.cluster.kraft.raft.node import RaftNode
from barnabas.cluster.kraft.raft.ports import NotLeaderError
from barnabas.cluster.kraft.raft.running import taking_part
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS, RaftSettings
from barnabas.cluster.kraft.values import Voter
from barnabas.config.metadata_log import LogSettings
from barnabas.config.quorum import QuorumSettings
from barnabas.environment.real import real_environment
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.log.format.properties import MetaProperties, encode_uuid
from barnabas.records.batch import iter_batches, whole_size
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.headers import encode_response, parse_request_header
from barnabas.wire.metadata_records import encode_record
from barnabas.wire.registry import request_codec
from compat.kafka.broker import CLUSTER_ID, free_port
from compat.metadata.quorum import HOST, Node

VERSIONS = {
    1: (4, 18),
    18: (0, 4),
    52: (0, 2),
    53: (0, 1),
    54: (0, 1),
    55: (0, 2),
    59: (0, 1),
    80: (0, 1),
    81: (0, 0),
    82: (0, 0),
}
DESCRIBE = DescribeQuorumRequest(
    [DescribeQuorumRequest.TopicData(CLUSTER_METADATA_TOPIC, [DescribeQuorumRequest.PartitionData(0)])]
)
EXPECTED = ("ControllerRegistration", "Graceful shutdown")
"""Complaints about a leader that is no controller, and of the last voter that is stopped."""
OURS = 3
LEVEL = 30
"""metadata.version, if ours is the first to lead."""
PATIENCE_S = 90
KINDS = ("static", "dynamic", "joining")
"""Voters in the settings, voters in the log from the first, and voters that join one after the other."""
SETTINGS = {
    "controller.quorum.election.timeout.ms": "1500",
    "metadata.log.max.snapshot.interval.ms": "15000",
}


class VotersError(Exception):
    """The quorum did not behave as expected."""


class Mixed:
    """Controllers 1 and 2 of Kafka, and our voter 3."""

    def __init__(self, version: str, directory: Path, kind: str) -> None:
        is_dynamic = kind != "static"
        self.directory, self.is_dynamic, self.joins = directory, is_dynamic, kind == "joining"
        self.port = free_port()
        self.kafka = {
            number: Node(version, directory / f"controller-{number}", number, "controller")
            for number in (1, 2)
        }
        ports = {**{number: node.port for number, node in self.kafka.items()}, OURS: self.port}
        self.addresses = {number: (HOST, port) for number, port in ports.items()}
        listed = {number: f"{HOST}:{port}" for number, port in ports.items()}
        if is_dynamic:
            quorum = {"controller.quorum.bootstrap.servers": ",".join(listed.values())}
        else:
            quorum = {
                "controller.quorum.voters": ",".join(f"{number}@{text}" for number, text in listed.items())
            }
        meta = {number: MetaProperties(1, CLUSTER_ID, number, bytes([number]) * 16) for number in ports}
        voters = ",".join(
            f"{number}@{text}:{encode_uuid(meta[number].directory_id or b'')}"
            for number, text in listed.items()
        )
        for number, node in self.kafka.items():
            joining = {"controller.quorum.auto.join.enable": "true"} if self.joins else {}
            node.configure({**SETTINGS, **quorum, **joining})
            first = "--standalone" if number == 1 else "--no-initial-controllers"
            node.format(*([first] if self.joins else ["--initial-controllers", voters] if is_dynamic else []))
        self.data = directory / "ours"
        (self.data / DIRECTORY).mkdir(parents=True)
        (self.data / "meta.properties").write_bytes(meta[OURS].encode())
        if is_dynamic and not self.joins:
            entries = [
                Voter(number, bytes([number]) * 16, (("CONTROLLER", *address),), KRAFT_VERSIONS)
                for number, address in self.addresses.items()
            ]
            (self.data / FIRST_VOTERS).write_bytes(first_voters_file(entries, 1_000))
        self.node: RaftNode

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[RaftNode]:
        """Run our voter, with a listener for the others."""
        quorum = QuorumSettings(
            node_id=OURS,
            log_dir=str(self.data),
            bootstrap=tuple(self.addresses.values()),
            static_voters={} if self.is_dynamic else self.addresses,
            fetch_timeout_ms=1_200,
            request_timeout_ms=2_000,
            retry_backoff_ms=20,
            fetch_bytes_max=1 << 20,
            snapshot_bytes_max=1 << 20,
            log=LogSettings(snapshot_interval_ms=20_000),
        )
        settings = RaftSettings.of(quorum, [("CONTROLLER", HOST, self.port)], joins=self.joins)
        async with (
            taking_part(quorum, settings, real_environment(), ClientSettings()) as node,
            trio.open_nursery() as nursery,
        ):
            self.node = node
            nursery.start_soon(trio.serve_tcp, lambda stream: self._serve(node, stream), self.port)
            yield node
            nursery.cancel_scope.cancel()

    async def _serve(self, node: RaftNode, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await self._answer(node, stream)

    async def _answer(self, node: RaftNode, stream: trio.SocketStream) -> None:
        data = b""
        while True:
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                part = await stream.receive_some()
                if not part:
                    return
                data += part
            end = 4 + int.from_bytes(data[:4], "big")
            frame, data = data[4:end], data[end:]
            header = parse_request_header(frame)
            key, version = header.api_key, header.api_version
            if key not in VERSIONS:
                return
            request, _ = request_codec(key).decoders[version](memoryview(frame), header.body_position)
            if key == 18:
                response: Any = ApiVersionsResponse(
                    api_keys=[ApiVersionsResponse.ApiVersion(key, *span) for key, span in VERSIONS.items()],
                    supported_features=[ApiVersionsResponse.SupportedFeatureKey("kraft.version", 0, 1)],
                )
            else:
                response = await node.answer(key, version, request)
            chunks = encode_response(key, version, header.correlation_id, response)
            await stream.send_all(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]

    async def leader_other_than(self, *others: int) -> int:
        """Return the leader known to our voter, once it is none of `others`."""
        with trio.move_on_after(PATIENCE_S):
            while self.node.leader_id in (-1, *others):
                await trio.sleep(0.05)
            return self.node.leader_id
        raise VotersError(f"no leader comes: {self.node.leader_id} in epoch {self.node.epoch}")

    async def commits(self, count: int = 4) -> None:
        """Wait until our voter's high watermark has advanced by `count` records."""
        target = self.node.high_watermark + count
        with trio.move_on_after(PATIENCE_S):
            while self.node.high_watermark < target:
                await trio.sleep(0.05)
            return
        raise VotersError(f"nothing is committed after {self.node.high_watermark}")

    def logs(self) -> dict[int, dict[int, bytes]]:
        """Return the batches of each node by offset."""
        logs: dict[int, dict[int, bytes]] = {}
        places = {
            OURS: self.data / DIRECTORY,
            **{number: node.metadata_dir for number, node in self.kafka.items()},
        }
        for number, place in places.items():
            logs[number] = {}
            for path in sorted(place.glob("*.log")):
                data = path.read_bytes()
                for at, header in iter_batches(data[: whole_size(data)]):
                    if header.magic == 2:
                        logs[number][header.base_offset] = data[at : at + header.size]
        return logs


async def join_in_turn(mixed: Mixed) -> list[str]:
    """Have ours join a quorum of Kafka's, and a controller of Kafka's join while ours leads."""
    node, threads = mixed.node, trio.to_thread.run_sync

    async def voters_are(*ids: int) -> None:
        with trio.fail_after(PATIENCE_S):
            while sorted(voter.id for voter in node.leadership.voters) != list(ids):
                await trio.sleep(0.1)

    await voters_are(1, OURS)
    story = [f"ours joined under Kafka {node.leader_id}"]
    for _ in range(10):
        if await mixed.leader_other_than() == OURS:
            break
        await threads(mixed.kafka[1].process.stop)
        await threads(mixed.kafka[1].launch)
        await trio.sleep(8)  # an election
    await threads(mixed.kafka[2].launch)
    await voters_are(1, 2, OURS)
    return [*story, f"Kafka 2 joined under {node.leader_id}, epoch {node.epoch}"]


async def lead_in_turn(mixed: Mixed, rounds: int) -> list[str]:
    """Let ours and Kafka's lead in turn; returns lines for the report."""
    story = []
    threads = trio.to_thread.run_sync
    for kafka in mixed.kafka.values():
        if kafka.id == 1 or not mixed.joins:
            await threads(kafka.launch)
    async with mixed.ours() as node:
        if mixed.joins:
            story += await join_in_turn(mixed)
        for _ in range(rounds):
            for _ in range(10):
                leader = await mixed.leader_other_than()
                if leader == OURS:
                    break
                await mixed.commits()
                story.append(f"Kafka {leader} led epoch {node.epoch}, committed to {node.high_watermark}")
                await threads(mixed.kafka[leader].process.kill)
                await mixed.leader_other_than(leader)
                await threads(mixed.kafka[leader].launch)
            else:
                raise VotersError("ours never leads")
            epoch = node.epoch
            with trio.fail_after(PATIENCE_S):
                while True:
                    begin = (
                        [] if node.image.metadata_version else [FeatureLevelRecord("metadata.version", LEVEL)]
                    )
                    try:
                        offset = node.append(
                            epoch, [encode_record(record, 0) for record in (*begin, NoOpRecord())]
                        )
                        break
                    except NotLeaderError:  # not yet
                        await trio.sleep(0.1)
                for _ in range(20):
                    offset = node.append(epoch, [encode_record(NoOpRecord(), 0)])
                await node.wait_committed(offset, epoch)
                while True:  # all three have it
                    answer = await node.answer(55, 2, DESCRIBE)
                    partition = answer.topics[0].partitions[0]
                    ends = {voter.replica_id: voter.log_end_offset for voter in partition.current_voters}
                    if min(ends.values()) > offset:
                        break
                    await trio.sleep(0.1)
            story.append(f"ours led epoch {epoch}, committed to {node.high_watermark}, log ends {ends}")
            node.resign(epoch)
            leader = await mixed.leader_other_than(OURS)
            await mixed.commits()
            story.append(
                f"Kafka {leader} took over in epoch {node.epoch}, committed to {node.high_watermark}"
            )
        committed = node.high_watermark
        if node.fault:
            raise VotersError(node.fault)
        story.append(f"image at {node.applied_offset}, metadata.version {node.image.metadata_version}")
    for kafka in mixed.kafka.values():
        await threads(kafka.process.stop)
    logs = mixed.logs()
    shared = [
        offset for offset in logs[OURS] if offset < committed and all(offset in log for log in logs.values())
    ]
    differing = [offset for offset in shared if len({log[offset] for log in logs.values()}) > 1]
    story.append(f"{len(shared)} batches compared, {len(differing)} differ")
    if differing or not shared:
        raise VotersError(f"logs differ at {differing[:5]}; {story}")
    return story


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="4.3.1")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--voters", choices=(*KINDS, "all"), default="all")
    arguments = parser.parse_args()
    kinds = KINDS if arguments.voters == "all" else (arguments.voters,)
    failures = 0
    for kind in kinds:
        with tempfile.TemporaryDirectory() as text:
            mixed = Mixed(arguments.version, Path(text), kind)
            try:
                for line in trio.run(lead_in_turn, mixed, arguments.rounds):
                    print(f"{kind}: {line}")
            except* (VotersError, trio.TooSlowError) as error:
                failures += 1
                print(f"{kind}: FAILED {error!r}")
            finally:
                for node in mixed.kafka.values():
                    node.process.kill()
                    output = node.process.output
                    lines = output.read_text(errors="replace").splitlines() if output.exists() else []
                    complaints = [
                        line
                        for line in lines
                        if (" ERROR " in line or " FATAL " in line)
                        and not any(text in line for text in EXPECTED)
                    ]
                    failures += bool(complaints)
                    print(f"{kind}: Kafka {node.id} complains {len(complaints)} times")
                    for line in complaints[:8]:
                        place = lines.index(line)
                        print("   ", "\n    ".join(text[:300] for text in lines[place : place + 8]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
