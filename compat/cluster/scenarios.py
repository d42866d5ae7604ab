"""python -m compat.cluster.scenarios: the same changes of a cluster through brokers of Kafka's and ours, outcomes compared.

Three brokers of one kind under a controller of Kafka's, then three of the other; each has two log dirs and its metadata on
disks of their own. Partitions are moved, features lowered and raised, voters added and removed, brokers unregistered, and
disks fail or are full under load. The rule: an outcome is what does not depend on the moment: what tools say but for
addresses and times, what the quorum has committed, what clients were answered.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat.cluster.nodes import KAFKA, OURS, ClusterError, KafkaError, chosen_names, in_directory
from compat.cluster.quorum_nodes import FIRST_BROKER, VERSION, QuorumCluster
from compat.cluster.scenario_steps import SCENARIOS, Scene
from compat.faults.hosts import Disk, HostError, enter_namespaces, run
from compat.kafka import ToolProcess, release
from compat.kafka.releases import fetch
from compat.kit.known import Difference, differences_of, judge
from compat.kit.wire import WireError

BROKERS = range(FIRST_BROKER, FIRST_BROKER + 3)
DISKS = ("first", "second", "metadata")
DISK_MB = 64
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "4096",
    "replica.fetch.wait.max.ms": "100",
}


def outcomes(kind: str, names: Sequence[str], directory: Path) -> dict[str, Any]:
    """Run scenarios in a cluster of one kind of broker; returns the outcome of each."""
    disks = {
        broker_id: [Disk(directory / f"broker-{broker_id}-{name}", DISK_MB) for name in DISKS]
        for broker_id in BROKERS
    }
    seen: dict[str, Any] = {}
    try:
        cluster = QuorumCluster(directory / "cluster", (kind,) * len(BROKERS), settings=SETTINGS)
        cluster.own = {
            broker_id: {
                "log.dirs": ",".join(str(disk.path / "logs") for disk in its[:2]),
                "metadata.log.dir": str(its[2].path / "logs"),
            }
            for broker_id, its in disks.items()
        }
        with cluster, ToolProcess(release(cluster.version)) as process:
            scene = Scene(cluster, process, disks)
            for name in names:
                begun = time.monotonic()
                try:
                    seen[name] = SCENARIOS[name](scene)
                except (ClusterError, KafkaError, WireError) as error:
                    seen[name] = {"failed": str(error)}
                failure = seen[name].get("failed", "")
                print(f"  {kind} {name} ({time.monotonic() - begun:.0f} s) {failure}", flush=True)
    finally:
        for disk in (disk for its in disks.values() for disk in its):
            disk.close()
    return seen


def compare(names: Sequence[str], directory: Path) -> None:
    """Run scenarios in a cluster of each kind. Raises ClusterError if an outcome differs, or is none."""
    run("ip", "link", "set", "lo", "up")
    theirs, ours = (outcomes(kind, names, directory / kind) for kind in (KAFKA, OURS))
    (directory / "outcomes.json").write_text(json.dumps({KAFKA: theirs, OURS: ours}, indent=1))
    differences: list[Difference] = []
    for name in names:
        differences += differences_of(name, theirs[name], ours[name])
    bad = judge(differences, (), complete=False)
    failed = [
        f"{name}: {seen[name]['failed']}"
        for seen in (theirs, ours)
        for name in names
        if "failed" in seen[name]
    ]
    if bad or failed:
        raise ClusterError(f"{bad} differences; {'; '.join(failed) or 'every scenario has ended'}")


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.scenarios", description=__doc__)
    parser.add_argument("--only", default="", metavar="A,B", help=f"only these, of {', '.join(SCENARIOS)}")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    names = chosen_names(parser, options.only, SCENARIOS) or list(SCENARIOS)
    try:
        fetch(release(VERSION))  # in the namespaces there is no way to anywhere else
        enter_namespaces("compat.cluster.scenarios", argv)
    except HostError as error:
        is_required = os.environ.get("CI") == "true"
        print(f"{'FAIL' if is_required else 'SKIP'}: {error}")
        return 1 if is_required else 0
    return in_directory("scenarios-", options.dir, lambda directory: compare(names, directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
