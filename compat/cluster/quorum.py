"""python -m compat.cluster quorum: brokers of Kafka's and ours under controllers of Kafka 4 and ours, in every role.

The checks are those of clusters on ZooKeeper (`checks`), and those that only a quorum has: controllers that are killed, a
snapshot for a late joiner, requests that our brokers forward. The rule: what is asked about the cluster is read from the
quorum's own log, as an observer reads it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.testing.running import import_path
from compat.cluster import checks, tools
from compat.cluster.howto import blocks
from compat.cluster.load import Load
from compat.cluster.nodes import KAFKA, OURS, Brokers, ClusterError, KafkaError, wait_until
from compat.cluster.quorum_nodes import (
    SETTINGS_OF,
    VERSION,
    QuorumCluster,
)
from compat.kafka import free_port, release, tool_command
from compat.kafka.process import java_command
from compat.metadata.quorum import HOST

UNREGISTRATION_LEVEL = 33
"""Of metadata.version: controllers are unregistered from it on."""
DEAD_LETTER_RUNS = 3
"""Each has new topics, with other leaders."""
MIXES = {
    "kafka": (KAFKA, KAFKA, KAFKA),
    "one-of-ours": (KAFKA, KAFKA, OURS),
    "two-of-ours": (KAFKA, OURS, OURS),
    "ours": (OURS, OURS, OURS),
    "rolled": (KAFKA, KAFKA, KAFKA),
}


OUR_CONTROLLERS: Mapping[str, tuple[int, ...]] = {
    "kafka": (),
    "one-of-ours": (1,),
    "two-of-ours": (1, 2),
    "ours": (1, 2, 3),
}
"""Ids of the controllers that are ours, by the words of --quorum."""


def controllers_killed(cluster: Brokers) -> str:
    """Records are acknowledged while the leading controller is killed, and metadata change after the election."""
    assert isinstance(cluster, QuorumCluster)
    if len(cluster.quorum.nodes) < 3:
        return "one controller: not done"
    load = Load(cluster.bootstrap, checks.TOPIC, checks.PARTITIONS)
    seconds = []
    with load:
        wait_until(lambda: len(load.acknowledged) > 1000, "the load begins")
        for number in range(2):
            leader = cluster.quorum.leader()
            begun = time.monotonic()
            leader.process.kill()
            cluster.quorum.leader(but=leader.id)
            tools.run(cluster, "topics", "--create", "--topic", f"after-{number}", "--partitions", "3")
            seconds.append(f"{time.monotonic() - begun:.1f} s")
            leader.start()
            so_far = len(load.acknowledged)
            wait_until(
                lambda so_far=so_far: len(load.acknowledged) > so_far + 1000, "records are acknowledged"
            )
    for number in range(2):
        cluster.wait_in_sync(f"after-{number}", 3)
    return f"a topic is made {', '.join(seconds)} after the kill"


def unregistered(cluster: Brokers) -> str:
    """kafka-cluster unregister, by a broker of ours if there is one, removes a stopped broker; it registers again."""
    broker_id = max(cluster.kinds)
    cluster.nodes[broker_id].stop()
    wait_until(lambda: broker_id not in cluster.live(), f"broker {broker_id} goes")
    tools.run(cluster, "cluster", "unregister", "--id", str(broker_id), expect="no longer registered")
    assert isinstance(cluster, QuorumCluster)
    wait_until(lambda: broker_id not in cluster.image().brokers, f"broker {broker_id} is unregistered")
    cluster.start(broker_id)
    for topic in cluster.topics():
        cluster.wait_in_sync(topic, cluster.replicas(topic))
    return f"broker {broker_id}"


def kafkas_tools(cluster: Brokers) -> str:
    """Kafka's tools print the same by each broker: features, quorum, topics, settings."""
    questions: dict[str, tuple[str, ...]] = {
        "features": ("describe",),
        "topics": ("--describe",),
        "log-dirs": ("--describe",),
        "metadata-quorum": ("describe", "--replication"),
        "cluster": ("cluster-id",),
        "configs": ("--describe", "--entity-type", "topics", "--all"),
    }
    assert isinstance(cluster, QuorumCluster)
    for tool, arguments in questions.items():
        answers = {}
        for broker_id in sorted(cluster.kinds):
            text = tools.run(cluster, tool, *arguments, at=cluster.nodes[broker_id].bootstrap)
            answers[broker_id] = _settled(tool, text)
        if tool == "log-dirs":
            continue  # sizes grow meanwhile
        if tool == "configs" and not cluster.version.startswith(SETTINGS_OF):
            answers = _of_all(answers)
        if tool == "features":
            answers = {broker_id: _finalized(lines) for broker_id, lines in answers.items()}
        if len({tuple(lines) for lines in answers.values()}) != 1:
            common = set.intersection(*map(set, answers.values()))
            own = {
                broker_id: [line for line in lines if line not in common]
                for broker_id, lines in answers.items()
            }
            raise ClusterError(f"{tool} says different things: {own}")
    return ", ".join(questions)


def controllers_tools(cluster: Brokers) -> str:
    """Kafka's tools work with the controllers themselves: features, quorum, end points, settings, reassignments."""
    assert isinstance(cluster, QuorumCluster)
    ids = [node.id for node in cluster.quorum.nodes]
    topic = ("--entity-type", "topics", "--entity-name", checks.TOPIC)
    questions: tuple[tuple[str, tuple[str, ...], str], ...] = (
        ("features", ("describe",), "metadata.version"),
        ("metadata-quorum", ("describe", "--status"), "LeaderId:"),
        ("metadata-quorum", ("describe", "--replication"), "Leader"),
        ("cluster", ("cluster-id",), "Cluster ID"),
        ("cluster", ("list-endpoints",), "controller"),
        ("configs", ("--alter", *topic, "--add-config", "max.message.bytes=777777"), "Completed"),
        ("configs", ("--alter", *topic, "--delete-config", "max.message.bytes"), "Completed"),
        (
            "configs",
            ("--describe", "--all", "--entity-type", "brokers", "--entity-name", str(ids[0])),
            "node.id",
        ),
        ("reassign-partitions", ("--list",), "No partition reassignments"),
    )
    for tool, arguments, expected in questions:
        tools.run(cluster, tool, *arguments, expect=expected, controllers=cluster.quorum.addresses)
    endpoints = tools.run(cluster, "cluster", "list-endpoints", controllers=cluster.quorum.addresses)
    for node in cluster.quorum.nodes:
        if str(node.port) not in endpoints:
            raise ClusterError(f"controller {node.id} is not among the end points: {endpoints}")
    return f"{len(questions)} calls at {len(ids)} controllers"


def _of_all(answers: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Return the lines of settings that every broker has: another release has others."""
    names = [{line.partition("=")[0] for line in lines} for lines in answers.values()]
    common = set.intersection(*names)
    return {
        broker_id: [line for line in lines if line.partition("=")[0] in common]
        for broker_id, lines in answers.items()
    }


def _finalized(lines: Sequence[str]) -> list[str]:
    """Return the finalized features; the levels that a broker supports are those of its release."""
    finalized = [re.sub(r"Supported\w+: (UNKNOWN )?\S+\s*", "", line) for line in lines]
    return [line for line in finalized if not line.endswith(": 0")]


def _settled(tool: str, text: str) -> list[str]:
    """Return the stable lines of an output, sorted."""
    lines = sorted(line.rstrip() for line in text.splitlines() if line.strip())
    if tool == "features":
        return sorted({line.partition("Epoch:")[0].rstrip() for line in lines})
    if tool == "metadata-quorum":
        return sorted({" ".join(line.split()[:2]) for line in lines})
    if (
        tool == "topics"
    ):  # the settings are in the order of a map of hashes, in each bucket in that of the answer
        heads = (line.partition("Configs: ") for line in lines)
        return [f"{head}{title}{','.join(sorted(values.split(',')))}" for head, title, values in heads]
    return lines


def as_printed(cluster: Brokers) -> str:
    """The commands of docs/how-to/cluster.md make a broker of this cluster, with its addresses and an own directory."""
    assert isinstance(cluster, QuorumCluster)
    directory = cluster.directory / "as-printed"
    programs = directory / "bin"
    programs.mkdir(parents=True)
    tool = shlex.join(tool_command(release(cluster.version), "cluster"))
    for name, command in (("kafka-cluster.sh", tool), ("barnabas", f"{sys.executable} -m barnabas")):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    (commands,) = blocks("In a cluster of Apache Kafka 4")
    port = free_port()
    words = {
        "localhost:9092": cluster.bootstrap.partition(",")[0],
        "localhost:9093": cluster.quorum.addresses.partition(",")[0],
        "localhost:9192": f"{HOST}:{port}",
        "/var/lib/barnabas": str(directory / "data"),
    }
    for printed, own in words.items():
        commands = commands.replace(printed, own)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": import_path(),
    }
    with (directory / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["sh", "-ec", commands], cwd=directory, env=environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(
            lambda: 7 in cluster.live(),
            "the broker of the page is unfenced",
            (directory / "output").read_text,
        )
        tools.run(
            cluster,
            "topics",
            "--create",
            "--topic",
            "printed",
            "--replica-assignment",
            "7",
            at=f"{HOST}:{port}",
        )
        wait_until(lambda: cluster.states("printed").get(0, {}).get("leader") == 7, "it leads a new topic")
        tools.run(cluster, "topics", "--delete", "--topic", "printed")
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(60)
    wait_until(lambda: 7 not in cluster.live(), "it leaves")
    return f"{len(commands.splitlines())} lines"


def dead_letters(cluster: Brokers) -> str:
    """The Java client finds dead letters of a share group in queues that other brokers lead, too."""
    program = Path(__file__).resolve().parents[1] / "share" / "run"
    command = [sys.executable, str(program), cluster.bootstrap.split(",")[-1], "dead-letters"]
    words = ""
    for _ in range(DEAD_LETTER_RUNS):
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        words = result.stdout.strip().splitlines()[-1] if result.stdout.strip() else result.stderr[-500:]
        if result.returncode:
            raise ClusterError(words)
        if words.startswith("SKIP"):
            return "share.version is below 2: not done"
    return f"{DEAD_LETTER_RUNS} times"


def controllers_unregistered(cluster: Brokers) -> str:
    """The Java client 4.4.0 unregisters a controller through any node, which registers again; others are refused."""
    assert isinstance(cluster, QuorumCluster)
    leader, ids = cluster.controller(), {node.id for node in cluster.quorum.nodes}
    others = sorted(ids - {leader})[:1]
    newest = ("InvalidRequestException", *("done" for _ in others), "ControllerIdNotRegisteredException")
    older = ("InvalidRequestException", *("UnsupportedVersionException" for _ in (*others, 0)))
    expected = newest if cluster.image().metadata_version >= UNREGISTRATION_LEVEL else older
    program = str(Path(__file__).with_name("Unregister.java"))
    places = {node.bootstrap: "bootstrap.servers" for node in cluster.nodes.values()}
    if cluster.version.startswith("4.4"):
        places[cluster.quorum.admin_addresses] = "bootstrap.controllers"
    for place, setting in places.items():
        arguments = (setting, place, *map(str, (leader, *others, 99)))
        command = [*java_command(release("4.4"), program), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        outcomes = tuple(line for line in result.stdout.splitlines() if line.isalpha())
        if outcomes != expected:
            raise ClusterError(f"{place}: {outcomes}, not {expected}: {result.stderr[-500:]}")
        wait_until(lambda: set(cluster.image().controllers) == ids, "all controllers are registered")
    return ", ".join(expected)


CHECKS: tuple[checks.Check, ...] = (
    checks.membership, checks.creation, checks.produce_and_consume, checks.java_clients, checks.transactions,
    checks.identical_replicas, dead_letters, kafkas_tools, controllers_tools,
    controllers_unregistered, checks.other_tools, checks.reassignment,
    checks.preferred_leaders,
    checks.leader_killed, checks.preferred_leaders, checks.clean_stop, controllers_killed, checks.offsets_survive,
    unregistered, as_printed, checks.identical_replicas,
)  # fmt: skip


def run_mix(
    mix: str,
    options: argparse.Namespace,
    directory: Path,
    chosen: Sequence[checks.Check],
    *,
    is_dynamic: bool,
) -> int:
    """Run checks in one cluster; returns the number of failures."""
    voters = "dynamic" if is_dynamic else "static"
    print(
        f"\n{mix}: Kafka {options.version}, {options.controllers} controllers ({options.quorum}), {voters} voters, "
        f"in {directory}",
        flush=True,
    )
    failures = 0
    try:
        cluster = QuorumCluster(
            directory,
            MIXES[mix],
            version=options.version,
            controllers=options.controllers,
            is_dynamic=is_dynamic,
            our_controllers=OUR_CONTROLLERS[options.quorum],
        )
        with cluster:
            for check in chosen:
                begun = time.monotonic()
                try:
                    outcome, verdict = check(cluster), "PASS"
                except (ClusterError, KafkaError) as error:
                    outcome, verdict = str(error), "FAIL"
                except Exception:
                    outcome, verdict = traceback.format_exc(), "FAIL"
                print(
                    f"  {verdict} {check.__name__} ({time.monotonic() - begun:.0f} s): {outcome}", flush=True
                )
                failures += verdict == "FAIL"
                if verdict == "FAIL" and not options.keep:
                    break
            for broker_id, lines in cluster.complaints().items():
                print(
                    f"  FAIL broker {broker_id} has logged {len(lines)} errors, the first: {lines[0]}",
                    flush=True,
                )
                failures += 1
    except (ClusterError, KafkaError, RuntimeError) as error:
        print(f"  FAIL {error}", flush=True)
        failures += 1
    return failures


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every check holds in every mix."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster quorum", description=__doc__)
    parser.add_argument(
        "--mixes", default="one-of-ours,two-of-ours,ours,rolled", help=f"of {', '.join(MIXES)}"
    )
    parser.add_argument("--version", default=VERSION, help="which Kafka (default: %(default)s)")
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--quorum",
        choices=OUR_CONTROLLERS,
        default="kafka",
        help="whose the controllers are (default: %(default)s)",
    )
    parser.add_argument("--voters", choices=("dynamic", "static"), default="dynamic")
    parser.add_argument("--checks", default="", help="only these, after creation")
    parser.add_argument("--keep", action="store_true", help="go on after a check that fails")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    names = [name for name in options.checks.split(",") if name]
    failures = 0
    for mix in options.mixes.split(","):
        table = checks.ROLLED if mix == "rolled" else CHECKS
        chosen = [
            check for check in table if not names or check.__name__ in ("membership", "creation", *names)
        ]
        directory = Path(tempfile.mkdtemp(prefix="quorum-", dir=options.dir))
        failed = run_mix(mix, options, directory, chosen, is_dynamic=options.voters == "dynamic")
        failures += failed
        if not failed and not options.dir:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{'FAIL' if failures else 'PASS'}: {failures} checks failed")
    return 1 if failures else 0
