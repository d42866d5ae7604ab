"""Metrics of a controller of which everything is known, and the counts of a voter."""

from types import SimpleNamespace

import pytest

from barnabas.cluster.kraft.controller.active import Counts
from barnabas.cluster.kraft.image import EMPTY, Position
from barnabas.cluster.kraft.raft.counts import RaftCounts
from barnabas.cluster.kraft.raft.values import Role
from barnabas.cluster.kraft.values import Broker, Partition
from barnabas.metrics.families import Families
from barnabas.metrics.of_controller import ControllerParts, controller_families
from barnabas.serving.loop_budget import LoopBudget

CLUSTER = "kafka_controller_kafkacontroller_"


@pytest.mark.parametrize(("is_active", "lag_ms"), [(True, 0), (False, 700)])
async def test_cluster_is_counted_as_the_committed_image_has_it(is_active, lag_ms):
    states = ((1, False, False), (2, True, False), (3, False, True))
    brokers = {
        number: Broker(number, 1, bytes(16), (), fenced=fenced, in_controlled_shutdown=leaves)
        for number, fenced, leaves in states
    }
    partitions = {
        (b"t", index): Partition((1, 2), (1, 2), leader, 0, 0) for index, leader in enumerate((1, 2, -1))
    }
    image = EMPTY._replace(brokers=brokers, partitions=partitions, position=Position(9, 1, 5_000))
    log = SimpleNamespace(vote=SimpleNamespace(id=-1), end_offset=12, last_epoch=4)
    replica = SimpleNamespace(role=Role.FOLLOWER, leading=None, voters=(1, 2, 3), log=log)
    voter = SimpleNamespace(
        image=image, high_watermark=11, counts=RaftCounts(), leader_id=7, epoch=4, replica=replica
    )
    counts = Counts()
    counts.errors, counts.heartbeats_timed_out = 1, 2
    active = SimpleNamespace(is_active=is_active, counts=counts)
    families = Families()
    await controller_families(families, ControllerParts(voter, active, LoopBudget(), lambda: 5_700))
    values = {
        (name, *dict(labels).values()): value
        for family in families
        for name, labels, value in family.samples()
    }
    expected = {
        "activecontrollercount": is_active, "activebrokercount": 2, "fencedbrokercount": 1,
        "controlledshutdownbrokercount": 1, "globalpartitioncount": 3, "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2, "lastappliedrecordoffset": 9, "lastappliedrecordtimestamp": 5_000,
        "lastappliedrecordlagms": lag_ms, "lastcommittedrecordoffset": 10, "metadataerrorcount": 1,
        "timedoutbrokerheartbeatcount": 2,
    }  # fmt: skip
    assert {name: values[CLUSTER + name,] for name in expected} == expected
    assert [values[f"{CLUSTER}brokerregistrationstate", str(number)] for number in (1, 2, 3)] == [30, 10, 20]
    assert values["kafka_server_raft_metrics_current_state", "follower"] == 1
    assert values["kafka_server_raft_metrics_current_leader",] == 7


def test_elections_and_commits_are_counted_from_their_begin():
    counts = RaftCounts()
    for role, leader_id, now in (
        (Role.UNATTACHED, -1, 0.0), (Role.PROSPECTIVE, -1, 1.0), (Role.CANDIDATE, -1, 2.0), (Role.LEADER, 1, 4.5),
    ):  # fmt: skip
        counts.has_changed(role, leader_id, is_another=leader_id == 1, now=now)
    counts.has_appended(10, 10, now=5.0)
    counts.has_appended(5, 15, now=6.0)
    counts.has_committed(12, now=7.0)
    assert (counts.elections, counts.election_seconds, counts.leaders) == (1, 3.5, 1)
    assert (counts.appended, counts.commits, counts.commit_seconds) == (15, 1, 2.0)
    counts.has_changed(Role.FOLLOWER, 2, is_another=True, now=8.0)
    counts.has_committed(20, now=9.0)
    assert (counts.commits, counts.leaders, counts.elections) == (1, 2, 1)
