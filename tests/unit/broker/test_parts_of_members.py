"""Parts of a broker in a cluster: which of two ways it takes, and what it tells others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.member_storage import _alter_partition
from barnabas.broker.membership import UncleanElections
from barnabas.cluster.metadata.image import BROKER, TOPIC
from barnabas.cluster.replicas.alter_partition import RemoteAlterPartition
from barnabas.cluster.replicas.isr_writing import WrittenIsrs
from barnabas.config.loading import BrokerConfig
from barnabas.testing.simulation.world import World
from tests.support.programs import run_with
from tests.support.replicating import in_world
from tests.support.zookeeper_cluster import clustered

NOBODY: Any = SimpleNamespace()


@pytest.mark.parametrize(
    ("version", "has_zookeeper", "kind"),
    [
        ("2.6", True, WrittenIsrs),
        ("2.7-IV1", True, WrittenIsrs),
        ("2.7-IV2", True, RemoteAlterPartition),  # the first version with AlterIsr (KIP-497)
        ("3.6", True, RemoteAlterPartition),
        ("2.6", False, RemoteAlterPartition),
    ],
)
async def test_isrs_are_changed_by_the_controller_from_its_version_on(
    version: str, has_zookeeper: bool, kind: type
) -> None:
    config = BrokerConfig({"inter.broker.protocol.version": version, "zookeeper.connect": "z:2181"})
    way = _alter_partition(config, NOBODY if has_zookeeper else None, NOBODY, NOBODY, lambda: 1)
    assert type(way) is kind


UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("of_broker", "before", "after", "key", "told"),
    [
        ("true", {}, {}, (BROKER, ""), [None]),
        ("false", {}, {}, (BROKER, ""), []),
        ("false", {}, {UNCLEAN: "true"}, (TOPIC, "t"), ["t"]),
        ("false", {UNCLEAN: "true"}, {UNCLEAN: "true"}, (TOPIC, "t"), []),
        ("false", {UNCLEAN: "true"}, {}, (TOPIC, "t"), []),
        ("true", {UNCLEAN: "false"}, {}, (TOPIC, "t"), ["t"]),
        ("true", {}, {UNCLEAN: "false"}, (TOPIC, "t"), []),
        ("true", {}, {}, ("client-metrics", "m"), []),
    ],
)
async def test_controller_hears_of_each_enabled_unclean_election(
    of_broker: str,
    before: dict[str, str],
    after: dict[str, str],
    key: tuple[Any, str],
    told: list[str | None],
) -> None:
    heard: list[str | None] = []
    controller: Any = SimpleNamespace(unclean_election_allowed=heard.append)
    old, new = (SimpleNamespace(settings_of=lambda *_, answer=answer: answer) for answer in (before, after))
    delta: Any = SimpleNamespace(configs=[key], old=old, new=new)
    following = UncleanElections(BrokerConfig({UNCLEAN: of_broker}), controller)
    await following.prepare(delta)
    following.publish(delta)
    assert heard == [], "the setting is obeyed by now"
    await following.clean_up(delta)
    assert heard == told


@run_with(in_world)
async def test_log_dirs_of_a_member_name_cluster_and_node_as_kafka(world: World) -> None:
    async with clustered(world, 4) as cluster:
        machine = cluster.machines[4]
        assert machine.broker is not None
        (directory,) = machine.broker.services.config.log_dirs
        lines = set(machine.disk.read(f"{directory}/meta.properties").decode().splitlines())
        image = machine.broker.services.metadata.image
        assert {"broker.id=4", f"cluster.id={image.cluster_id}", "version=0"} <= lines
        assert not any(line.startswith("node.id") for line in lines)
