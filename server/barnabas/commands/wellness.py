"""A cluster from inside: versions, advertised listeners, partitions, log dirs, clocks, and limits of a local broker.

The rule: nothing is changed, except for the topic that `--write` creates to read the broker's clock, and deletes again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.client import ClientError, Connection, Endpoint
from barnabas.client import admin as administration
from barnabas.commands.errors import explain, name_of
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Findings
from barnabas.environment.terminal import counted
from barnabas.network.transport import is_loopback
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.system.processes import SHOWS_PROCESSES, listening_process, open_files
from barnabas.tools.probing.release import guess

SKEW_MS = 5_000
"""A difference of clocks that matters to retention, lookups by time, and tokens."""
NAMES_SHOWN = 5
USED_MAX = 0.8
FREE_MIN = 0.1
FILES_MIN = 4096
KAFKA_4_NEEDS = {0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 18: 0}
"""First versions that Apache Kafka 4 clients speak (KIP-896), by API key."""
_TOO_OLD = "Apache Kafka 4 clients need 2.1 or later"


def check_versions(connection: Connection, findings: Findings) -> None:
    """Report the probable release of a broker, and whether newer clients cannot use it."""
    subject = str(connection.peer)
    advertised = connection.versions
    lacking = [key for key, first in KAFKA_4_NEEDS.items() if advertised.get(key, (0, -1))[1] < first]
    if lacking:
        findings.add(
            "versions",
            subject,
            PROBLEM,
            f"{guess(advertised)}: {_TOO_OLD}",
            "update the broker, or use older clients",
        )
    else:
        findings.add("versions", subject, OK, str(guess(advertised)))


async def check_controller(admin: administration.Admin, findings: Findings) -> None:
    """Report if no controller is known: topics cannot be created then, nor leaders elected."""
    cluster = await admin.describe_cluster()
    if cluster.controller_id < 0:
        findings.add(
            "controller",
            cluster.cluster_id,
            PROBLEM,
            "no controller is known",
            "look at the logs of controllers, or of ZooKeeper",
        )
    else:
        findings.add(
            "controller",
            cluster.cluster_id,
            OK,
            f"requests for the controller go to broker {cluster.controller_id}",
        )


async def check_partitions(admin: administration.Admin, findings: Findings) -> None:
    """Tell partitions without a leader, with too few replicas in sync, and with replicas that are down."""
    topics = await admin.topics()
    infos = [topic for topic in topics.values() if isinstance(topic, administration.TopicInfo)]
    limits = await _min_in_sync(admin, [topic.name for topic in infos])
    offline, below, behind = [], [], []
    for topic in infos:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.number}"
            if partition.leader < 0:
                offline.append(name)
            elif len(partition.in_sync) < limits.get(topic.name, 1):
                below.append(name)
            elif len(partition.in_sync) < len(partition.replicas):
                behind.append(name)
    count = sum(len(topic.partitions) for topic in infos)
    for names, text, advice in (
        (offline, "have no leader", "start the brokers that hold them; `barnabas brokers elect --unclean` loses records"),
        (below, "have fewer replicas in sync than min.insync.replicas", "acks=all is refused: start the brokers that lag"),
        (behind, "have replicas that are not in sync", "`barnabas topics describe` shows them: look at their brokers"),
    ):  # fmt: skip
        if names:
            findings.add("partitions", _some(names), PROBLEM, f"{len(names)} of {count} {text}", advice)
    if not (offline or below or behind):
        findings.add(
            "partitions",
            counted(len(infos), "topic"),
            OK,
            f"all {count} have a leader and all replicas in sync",
        )


async def _min_in_sync(admin: administration.Admin, topics: Iterable[str]) -> dict[str, int]:
    configs = await admin.describe_configs(
        [administration.Resource("topic", topic) for topic in topics], names=["min.insync.replicas"]
    )
    limits = {}
    for resource, entries in configs.items():
        value = entries[0].value if not isinstance(entries, ClientError) and entries else None
        if value is not None and value.isdecimal():
            limits[resource.name] = int(value)
    return limits


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown}, ..."


async def check_log_dirs(admin: administration.Admin, findings: Findings) -> None:
    """Tell log dirs that have failed or are nearly full."""
    for broker, dirs in (await admin.log_dirs()).items():
        if isinstance(dirs, ClientError):
            findings.add("log dirs", f"broker {broker}", SKIPPED, f"not told: {name_of(dirs)}")
            continue
        for log_dir in dirs:
            subject = f"broker {broker} {log_dir.path}"
            if log_dir.error is not None:
                findings.add(
                    "log dirs",
                    subject,
                    PROBLEM,
                    name_of(log_dir.error),
                    "look at the disk and at the broker's log",
                )
            elif log_dir.total_bytes > 0 and log_dir.usable_bytes < log_dir.total_bytes * FREE_MIN:
                free = log_dir.usable_bytes * 100 // log_dir.total_bytes
                findings.add(
                    "log dirs",
                    subject,
                    PROBLEM,
                    f"only {free} % of the disk are free",
                    "make room, or lower retention",
                )
            else:
                findings.add("log dirs", subject, OK, counted(len(log_dir.replicas), "replica"))


async def check_clock(
    admin: administration.Admin, findings: Findings, *, writes: bool, clock: Callable[[], float] = time.time
) -> None:
    """Tell if clocks differ: the broker's, by a record that it stamps, or that of producers, by their newest records."""
    if writes:
        await _check_brokers_clock(admin, findings, clock)
    topics = await admin.topics()
    partitions = [place for place in administration.partitions_of(topics) if not place[0].startswith("__")]
    newest = (
        await admin.offsets(dict.fromkeys(partitions, administration.MAX_TIMESTAMP)) if partitions else {}
    )
    now_ms = int(clock() * 1000)
    times = {
        place: at.timestamp_ms
        for place, at in newest.items()
        if not isinstance(at, ClientError) and at.offset >= 0
    }
    ahead = {place: at - now_ms for place, at in times.items() if at - now_ms > SKEW_MS}
    if ahead:
        worst = max(ahead, key=ahead.__getitem__)
        findings.add(
            "clock", _some([f"{topic}-{number}" for topic, number in ahead]), PROBLEM,
            f"the newest records of {counted(len(ahead), 'partition')} are from the future, "
            f"by {ahead[worst] / 1000:.0f} s at most",
            "set the clocks of this machine, of producers, or of brokers (message.timestamp.type=LogAppendTime) by NTP",
        )  # fmt: skip
    elif times:
        findings.add("clock", counted(len(times), "partition"), OK, "no record is from the future")
    else:
        findings.add(
            "clock",
            "records",
            SKIPPED,
            "there are no records to compare with" + ("" if writes else "; --write makes one"),
        )


async def _check_brokers_clock(
    admin: administration.Admin, findings: Findings, clock: Callable[[], float]
) -> None:
    """Append a record with LogAppendTime to a temporary topic, and compare its timestamp with the local clock."""
    from barnabas.wire.generated.produce import ProduceRequest as Request

    name = f"barnabas-doctor-{secrets.token_hex(4)}"
    failure = (
        await admin.create_topics(
            [administration.NewTopic(name, 1, 1, {"message.timestamp.type": "LogAppendTime"})]
        )
    )[name]
    if failure is not None:
        findings.add("clock", "broker", SKIPPED, f"no topic can be made to read it: {name_of(failure)}")
        return
    try:
        before_ms = clock() * 1000
        records = encode_batch([Record(0, int(before_ms), None, b"barnabas doctor")])
        request = Request(acks=-1, timeout_ms=10_000)
        request.topic_data = [
            Request.TopicProduceData(name, partition_data=[Request.PartitionProduceData(0, records)])
        ]
        response = await admin.client.ask_leader(
            name,
            0,
            request,
            error_of=lambda answer: answer.responses[0].partition_responses[0].error_code,
            version_max=12,
        )
        stamped_ms = response.responses[0].partition_responses[0].log_append_time_ms
        skew_ms = stamped_ms - (before_ms + clock() * 1000) / 2
        status = OK if abs(skew_ms) <= SKEW_MS else PROBLEM
        advice = "" if status == OK else "have both machines set their clocks by NTP"
        findings.add(
            "clock", "broker", status, f"it differs from this machine's by {skew_ms / 1000:+.1f} s", advice
        )
    except ClientError as error:
        findings.add("clock", "broker", SKIPPED, explain(error))
    finally:
        await _delete(admin, name, findings)


async def _delete(admin: administration.Admin, name: str, findings: Findings) -> None:
    """Delete the created topic, or report that it remains."""
    try:
        error = (await admin.delete_topics([name]))[name]
    except ClientError as failure:
        error = failure
    if error is not None:
        findings.add(
            "clock", "broker", NOTE, f"topic {name}, made for this, is left: {name_of(error)}",
            f"delete it: `barnabas topics delete {name}`",
        )  # fmt: skip


# --- limits of a broker on this machine -------------------------------------------------------------------------


class Processes(NamedTuple):
    """Processes of this machine, as far as it shows them."""

    are_shown: bool = SHOWS_PROCESSES
    listening: Callable[[int], int | None] = listening_process
    open_files: Callable[[int], tuple[int, int]] = open_files


PROCESSES = Processes()


def check_local_files(
    endpoint: Endpoint, addresses: Iterable[str], findings: Findings, processes: Processes = PROCESSES
) -> None:
    """Tell if a broker of this machine may open few files, or has nearly as many open as it may."""
    subject = str(endpoint)
    if not any(is_loopback(address) for address in addresses):
        findings.add("open files", subject, SKIPPED, "the broker is not on this machine")
        return
    if not processes.are_shown:
        findings.add("open files", subject, SKIPPED, "this system does not show the files of other processes")
        return
    process = processes.listening(endpoint.port)
    if process is None:
        findings.add(
            "open files",
            subject,
            SKIPPED,
            "the process that listens belongs to another user, or is in a container",
        )
        return
    used, limit = processes.open_files(process)
    text = f"process {process} has {used} files open of {limit}"
    if limit >= 0 and used > limit * USED_MAX:
        findings.add(
            "open files",
            subject,
            PROBLEM,
            text,
            "raise LimitNOFILE of its service (ulimit -n), and start it again",
        )
    elif 0 <= limit < FILES_MIN:
        findings.add(
            "open files",
            subject,
            NOTE,
            text,
            "a partition has a few files open, a client one: raise LimitNOFILE (ulimit -n)",
        )
    else:
        findings.add("open files", subject, OK, text)
