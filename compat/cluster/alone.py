"""A broker of Kafka's and one of ours, each alone under a controller of Kafka's, for comparisons of their answers.

The rule: both have the same settings and the same number, so that what is compared for nodes that stand alone can be
compared for brokers of a quorum as it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compat.cluster.nodes import wait_until
from compat.cluster.quorum_nodes import KafkaNode, OurNode
from compat.kafka import free_port
from compat.kafka.broker import COMMON_SETTINGS, READY_TIMEOUT_S
from compat.kit.known import KnownDifference
from compat.kit.sides import Side
from compat.kit.wire import WireError
from compat.metadata.quorum import HOST, Node

BROKER, CONTROLLER = 1, 9
WITHOUT_QUORUM = ("decision 143", "no quorum of controllers")
"""In reasons of what is known of a node without a quorum alone."""
NO_SETTINGS: Mapping[str, str] = {}


@contextmanager
def in_quorums(
    settings: Mapping[str, str] = NO_SETTINGS, version: str = "4.3.1"
) -> Iterator[tuple[Side, Side]]:
    """(Apache Kafka, Barnabas), each the only broker of its cluster. Raises KafkaError, BrokerError, ClusterError."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorums-")))
        sides = []
        for name, maker in (("Kafka", KafkaNode), ("Barnabas", OurNode)):
            controller = Node(version, directory / name / "controller", CONTROLLER, "controller")
            quorum = {"controller.quorum.bootstrap.servers": f"{HOST}:{controller.port}"}
            common = {**COMMON_SETTINGS, **settings}
            controller.configure({**common, **quorum})
            controller.format("--standalone")
            stack.callback(controller.process.stop)
            controller.start()
            port = free_port()
            broker = maker(BROKER, port, directory / name / "broker", {**common, **quorum}, version)
            stack.callback(broker.kill)
            broker.start()
            sides.append(Side(name, port))
        for side in sides:
            wait_until(
                lambda side=side: _is_known(side), f"{side.name} is in Metadata", seconds=READY_TIMEOUT_S
            )
        yield sides[0], sides[1]


def known_in_quorum(known_differences: Sequence[KnownDifference]) -> list[KnownDifference]:
    """Return the known differences that a broker of a quorum may have, too: it is no node without one."""
    return [row for row in known_differences if not any(word in row.reason for word in WITHOUT_QUORUM)]


def _is_known(side: Side) -> bool:
    try:
        with side.connect() as connection:
            return bool(connection.ask("Metadata", 12, {"Topics": []})["Brokers"])
    except (OSError, WireError):
        return False
