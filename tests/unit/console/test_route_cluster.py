"""Routes over the quorum of controllers, of a cluster that answers as a test says."""

from __future__ import annotations

from types import SimpleNamespace

from barnabas.client import UnsupportedVersionError
from barnabas.client.administration.cluster import QuorumNode
from tests.support.console_cluster import REFUSED, REFUSED_TEXT, Cluster, refused, shown


async def test_quorum_has_roles_lags_and_times() -> None:
    nodes = [
        QuorumNode(3, "voter", 90, 5, 5, ("c3:9093",)),
        QuorumNode(4, "voter", 100, -1, -1),
        QuorumNode(7, "observer", 1, 8, 0),
    ]
    quorum = await shown(Cluster(quorum=(4, 2, nodes)), "/api/quorum")
    assert (quorum["leader"], quorum["epoch"], quorum["controller"]) == (4, 2, 4)
    columns = ("id", "role", "votes", "log_end", "lag", "fetched_at", "caught_up_at", "addresses")
    assert [tuple(node[column] for column in columns) for node in quorum["nodes"]] == [
        (3, "voter", True, 90, 10, 5, 5, ("c3:9093",)),
        (4, "leader", True, 100, 0, None, None, ()),
        (7, "observer", False, 1, 99, 8, 0, ()),
    ]


async def test_cluster_without_a_quorum_has_its_controller() -> None:
    cluster = Cluster(
        quorum=UnsupportedVersionError("no such API"), describe_cluster=SimpleNamespace(controller_id=1)
    )
    quorum = await shown(cluster, "/api/quorum")
    assert quorum == {"leader": None, "epoch": None, "nodes": [], "controller": 1}


async def test_quorum_that_may_not_be_seen_says_so() -> None:
    status, error = await refused(Cluster(quorum=REFUSED), "GET", "/api/quorum")
    assert (status, error) == (403, REFUSED_TEXT)
