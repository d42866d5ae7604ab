"""python -m compat.cluster.parity: a broker of Kafka's and one of ours in one quorum, asked the same, field by field.

First one resource of every kind is created: topics with replicas at each broker, at a fenced one, and without a leader;
settings, ACLs, quotas, users, tokens. Then each broker gets requests to describe and to change them, valid and invalid, and
Kafka's tools are run at each. The rule: changed resources have a different name for each side, written SIDE here, so that
both can get the same requests.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from compat.cluster import parity_changes, parity_steps
from compat.cluster.nodes import KAFKA, OURS, ClusterError, in_directory, wait_until
from compat.cluster.parity_clients import clients, internal_topics
from compat.cluster.parity_cluster import KAFKAS, OF_OURS, Member, fill
from compat.cluster.parity_known import KNOWN
from compat.cluster.parity_tools import tools
from compat.cluster.quorum_peers import QuorumPeers
from compat.kit.compare import run
from compat.kit.known import Difference, judge
from compat.kit.wire import Connection

AT_ONCE = ("consumer.assignment.interval", "share.assignment.interval", "streams.initial.rebalance.delay")
SETTLE_S = 1.5
"""Time until both brokers of a quorum see a change; busy machines take longer."""
OTHERS = {"internal": internal_topics, "clients": clients}
"""Parts that are no single requests."""
PARTS = {**parity_steps.PARTS, **parity_changes.PARTS}
ALL = (*parity_steps.PARTS, "tools", *parity_changes.PARTS, *OTHERS)
"""All parts, in an order in which topics of one part do not disturb another."""


def sides(peers: QuorumPeers) -> tuple[Member, Member]:
    """Return (the broker of Kafka's, ours), for `compat.kit.compare`."""
    theirs, ours = (
        Member(peers.what(broker_id), peers.cluster.ports[broker_id], peers.users[broker_id], word, broker_id)
        for broker_id, word in ((KAFKAS, "kafkas-side"), (OF_OURS, "our-side"))
    )
    return theirs, ours


def compare(peers: QuorumPeers, parts: Sequence[str], only: str) -> int:
    """Ask and judge; returns how many differences are not known."""
    theirs, ours = sides(peers)
    differences: list[Difference] = []
    asked = commands = 0
    for name in parts:
        begun = time.monotonic()
        if name in OTHERS:
            try:
                print(f"  {name}: {OTHERS[name](peers, (KAFKAS, OF_OURS))}", flush=True)
                differing = []
            except ClusterError as error:
                differing = [Difference(name, "", "", str(error))]
        elif name == "tools":
            differing, commands = tools(peers)
        else:
            steps = list(PARTS[name]())
            asked += len(steps)
            differing = run(steps, theirs, ours, KNOWN, SETTLE_S)
        unknown = [item for item in differing if not any(row.covers(item) for row in KNOWN)]
        print(
            f"  {name}: {len(differing)} differences, {len(unknown)} not known ({time.monotonic() - begun:.0f} s)",
            flush=True,
        )
        differences += differing
    shown = [difference for difference in differences if only in difference.label]
    complete = len(parts) == len(ALL) and not only
    sys.stdout.flush()
    bad = judge(shown, KNOWN, complete=complete, together=True)
    print(
        f"{asked} requests and {commands} commands, {len(differences)} differences, {bad} of them not as known",
        flush=True,
    )
    return bad


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.parity", description=__doc__)
    parser.add_argument("--parts", default="", metavar="A,B", help=f"only these, of {', '.join(ALL)}")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="show differences of steps with this in their label"
    )
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    parser.add_argument(
        "--turns", action="store_true", help="restart our broker and ask again at each line of stdin"
    )
    options = parser.parse_args(argv)
    parts = [name for name in options.parts.split(",") if name] or ALL

    def compared(directory: Path) -> None:
        # ANONYMOUS, the program that asks, is a super user; each topic has as many replicas as are wanted.
        settings = {"default.replication.factor": "1", "min.insync.replicas": "1", "num.partitions": "1"}
        # Settings of our brokers in all checks.
        settings |= {f"group.{name}.ms": "0" for name in AT_ONCE}
        internal = {f"{name}.replication.factor": "1" for name in ("offsets.topic", "transaction.state.log")}
        peers = QuorumPeers(directory, (KAFKA, OURS), settings=settings | internal)
        with peers.cluster as cluster:
            with (
                Connection("127.0.0.1", cluster.quorum.leader().admin_port) as controller,
                Connection("127.0.0.1", cluster.ports[KAFKAS]) as broker,
            ):
                fill(controller, broker)
            wait_until(lambda: cluster.live() == {KAFKAS, OF_OURS}, "the third broker is fenced")
            bad = compare(peers, parts, options.only)
            while options.turns and (line := sys.stdin.readline().strip()):
                cluster.nodes[OF_OURS].stop()
                cluster.start(OF_OURS)
                chosen, _, only = line.partition(" ")
                bad = compare(peers, ALL if chosen == "all" else chosen.split(","), only)
                print("--- turn ends", flush=True)
            for broker_id, lines in cluster.complaints().items():
                print(f"broker {broker_id} has logged {len(lines)} errors, the first: {lines[0]}")
        if bad:
            raise ClusterError(f"{bad} differences are not known")

    return in_directory("parity-", options.dir, compared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
