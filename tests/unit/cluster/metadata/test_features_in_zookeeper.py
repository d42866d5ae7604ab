"""The cluster's features: read and written in Kafka's znode, followed whichever broker has written it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.features import ZooKeeperFeatures
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.cluster.zookeeper.znodes import BrokerRegistration, Endpoint
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

BOTH = {"group.version": 1, "transaction.version": 2}


@asynccontextmanager
async def brokers(count=2):
    """Stores of brokers with their features, and the ZooKeeper that they share."""
    zookeeper = SimulatedZooKeeper()
    parts = []
    async with trio.open_nursery() as nursery:
        for broker_id in range(1, count + 1):
            session = zookeeper.session()
            store = ZooKeeperStore(session, broker_id, lambda: 0)
            await store.open("cluster")
            features = ZooKeeperFeatures(session, store)
            await features.read()
            nursery.start_soon(store.run)
            nursery.start_soon(features.run)
            parts.append((store, features, session))
        yield zookeeper, parts
        nursery.cancel_scope.cancel()


async def test_all_brokers_follow_what_one_finalizes(autojump_clock) -> None:
    async with brokers() as (zookeeper, ((first, features, _), (two, _, _))):
        assert (first.image.features, first.image.features_epoch) == ({}, -1)
        await features.finalize(BOTH)
        assert first.image.features == BOTH
        await trio.testing.wait_all_tasks_blocked()
        assert (two.image.features, two.image.features_epoch) == (BOTH, 0)
        await features.finalize({"group.version": 0})
        await trio.testing.wait_all_tasks_blocked()
        assert (two.image.features, two.image.features_epoch) == ({"transaction.version": 2}, 1)
        kept = resources.decode_features(zookeeper.dump()[resources.FEATURE])
        assert kept == resources.FinalizedFeatures(True, {"transaction.version": 2})


async def test_features_that_are_switched_off_or_broken_are_none(autojump_clock) -> None:
    async with brokers(1) as (_, ((store, features, session),)):
        await features.finalize(BOTH)
        for data in (resources.encode_features(resources.FinalizedFeatures(False, BOTH)), b"not JSON"):
            await session.set(resources.FEATURE, data)
            await trio.testing.wait_all_tasks_blocked()
            assert (store.image.features, store.image.features_epoch) == ({}, -1)
        await features.finalize({"group.version": 1})
        await trio.testing.wait_all_tasks_blocked()
        assert store.image.features == {"group.version": 1}


@pytest.mark.parametrize("lose", ["answer", "request"])
async def test_what_is_lost_on_the_way_is_written_once_more(lose, autojump_clock) -> None:
    async with brokers(1) as (_, ((store, features, session),)):
        await features.finalize({"group.version": 1})
        getattr(session, f"lose_next_{lose}")()
        session.connect_soon()
        await features.finalize({"transaction.version": 2})
        await trio.testing.wait_all_tasks_blocked()
        assert store.image.features == BOTH


async def test_the_znode_is_followed_over_lost_connections(autojump_clock) -> None:
    async with brokers() as (_, ((_, features, _), (two, _, session))):
        session.disconnect()
        await features.finalize(BOTH)
        session.connect_soon()
        await trio.sleep(10)
        assert two.image.features == BOTH


async def test_support_is_what_brokers_have_registered(autojump_clock) -> None:
    async with brokers(1) as (_, ((_, features, session),)):
        endpoints = (Endpoint("PLAINTEXT", "one", 9092, "PLAINTEXT"),)
        ours = BrokerRegistration(endpoints, features={"group.version": (1, 1)})
        for broker_id, registration in ((1, ours), (2, BrokerRegistration(endpoints))):
            path = znodes.broker_path(broker_id)
            await session.create(path, znodes.encode_broker(registration), parents=True)
        assert await features.supported() == {1: {"group.version": (1, 1)}, 2: {}}
