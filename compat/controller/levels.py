"""kraft.version of a quorum of Kafka's controllers and ours goes up while it runs: python -m compat.controller.levels.

Three controllers with static voters, first a leader of ours, then one of Kafka's. Each voter tells its leader which levels
it supports (UpdateRaftVoter); the leader writes kraft.version 1 with the voters (UpdateFeatures, KIP-853); then all start
again. The exit code is 1 if the level does not go up, a voter's directory is not known, or no controller leads after the
restart.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat.controller.states import QUORUM
from compat.kafka import KafkaError
from compat.kit.wire import ZERO_UUID, Connection, Values, WireError
from compat.metadata.quorum import Node, OurController, Quorum

VERSION = "4.4.0"
OURS = {"ours": (1, 2), "Kafka's": (1,)}
"""Ids of the controllers that are ours, by the kind of controller that is to lead."""
SETTINGS = {"controller.quorum.election.timeout.ms": "1000"}
LEADERS_MAX = 10
PATIENCE_S = 30


class LevelsError(Exception):
    """The quorum did not behave as expected."""


def _ask(node: Node, api: str, values: Values) -> Values:
    with Connection(node.host, node.port) as connection:
        return connection.ask(api, 2, values)


def _raise(node: Node, *, only_asked: bool) -> str:
    """Ask a leader to raise the level; returns its error message, empty on success."""
    entry = {"Feature": "kraft.version", "MaxVersionLevel": 1, "UpgradeType": 1}
    values = {"timeoutMs": 9000, "FeatureUpdates": [entry], "ValidateOnly": only_asked}
    answer = _ask(node, "UpdateFeatures", values)
    return str(answer["ErrorMessage"]) if answer["ErrorCode"] else ""


def _wait(what: Callable[[], Any], problem: str) -> None:
    """Wait until a condition holds. Raises LevelsError."""
    give_up = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > give_up:
            raise LevelsError(problem)
        time.sleep(0.2)


def _leader_of(quorum: Quorum, *, is_ours: bool) -> Node:
    """Return a leader of ours or of Kafka's, by restarting leaders of the other kind. Raises LevelsError."""
    for _ in range(LEADERS_MAX):
        leader = quorum.leader()
        if isinstance(leader, OurController) == is_ours:
            return leader
        leader.process.stop()
        quorum.leader(but=leader.id)
        leader.start()
    raise LevelsError("no controller of that kind has led")


def _voters(leader: Node) -> dict[int, bytes]:
    """Return the directory of each voter, as the leader describes them."""
    partition = _ask(leader, "DescribeQuorum", QUORUM)["Topics"][0]["Partitions"][0]
    return {voter["ReplicaId"]: voter["ReplicaDirectoryId"] for voter in partition["CurrentVoters"]}


def check(version: str, kind: str, directory: Path) -> None:
    """Raise the level under a leader of one kind. Raises LevelsError, KafkaError, RuntimeError."""
    quorum = Quorum(version, directory, 3, is_dynamic=False, settings=SETTINGS, ours=OURS[kind])
    try:
        quorum.start()
        leader = _leader_of(quorum, is_ours=kind == "ours")
        _wait(lambda: not _raise(leader, only_asked=True), "not all voters have told what they support")
        if problem := _raise(leader, only_asked=False):
            raise LevelsError(problem)
        voters = _voters(leader)
        if set(voters) != {1, 2, 3} or ZERO_UUID in voters.values():
            raise LevelsError(f"the voters are {voters}")
        quorum.stop()
        quorum.start()
        if _voters(quorum.leader()) != voters:
            raise LevelsError("the voters are others after a restart")
    finally:
        quorum.stop()


def main() -> None:
    """Check both kinds, and end the process."""
    parser = argparse.ArgumentParser(prog="python -m compat.controller.levels", description=__doc__)
    parser.add_argument("--version", default=VERSION, help=f"which Kafka (default: {VERSION})")
    version = parser.parse_args().version
    for kind in OURS:
        with tempfile.TemporaryDirectory(prefix="levels-") as directory:
            try:
                check(version, kind, Path(directory))
            except (LevelsError, KafkaError, RuntimeError, WireError, OSError) as error:
                sys.exit(f"under a leader of {kind}: {error}")
        print(f"under a leader of {kind}: kraft.version is 1, with three voters, also after a restart")


if __name__ == "__main__":
    main()
