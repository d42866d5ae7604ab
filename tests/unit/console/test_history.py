"""The last minutes of a cluster in numbers: sampled from the first look on, bounded, and rarer where a look is dear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from barnabas.client import ConnectionLostError, open_client
from barnabas.client.admin import Acl, Admin
from barnabas.client.settings import SaslCredentials
from barnabas.console.history import EVERY_SECONDS, HISTORY_SECONDS, RETRY_SECONDS, History, Sample
from barnabas.console.own_broker import target_of
from barnabas.console.server import ConsoleServer
from barnabas.console.target import Cluster as ShownCluster
from barnabas.network.visitors import Address
from tests.support.console import LOGIN, PASSWORD, Visitor, console_beside


class Cluster:
    """A cluster that is measured, which takes a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.looks = 0

    async def measure(self) -> Sample:
        self.looks += 1
        await trio.sleep(self.seconds)
        return Sample(int(trio.current_time() * 1_000), {"lag": self.looks})


async def test_history_begins_with_the_first_look(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = Cluster()
    history = History(cluster.measure, nursery)
    await trio.sleep(100)
    assert cluster.looks == 0
    assert [sample.values["lag"] for sample in await history.samples()] == [1]
    await trio.sleep(3 * EVERY_SECONDS + 1)
    assert [sample.values["lag"] for sample in await history.samples()] == [1, 2, 3, 4]


async def test_history_holds_fifteen_minutes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    history = History(Cluster().measure, nursery)
    await history.samples()
    await trio.sleep(2 * HISTORY_SECONDS)
    samples = await history.samples()
    assert len(samples) == HISTORY_SECONDS / EVERY_SECONDS == 90
    assert samples[-1].at_ms - samples[0].at_ms < HISTORY_SECONDS * 1_000


async def test_dear_looks_are_rarer(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster(seconds=1.0)
    history = History(cluster.measure, nursery)
    await history.samples()
    await trio.sleep(950)
    assert cluster.looks == 11  # one second of a hundred, but for the first


async def test_visitor_after_a_while_has_a_sample_taken(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = Cluster(seconds=1.0)
    history = History(cluster.measure, nursery)
    await history.samples()
    await trio.sleep(30)
    looks = cluster.looks
    await history.samples()
    await trio.sleep(2)
    assert cluster.looks == looks, "a visitor was there a moment ago"
    await trio.sleep(61)
    await history.samples()
    await trio.sleep(2)
    assert cluster.looks == looks + 1


async def test_overview_has_the_cluster_in_numbers_over_time(tmp_path: Path) -> None:
    async with console_beside(tmp_path) as console:
        await console.make_topic("orders", 2)
        await console.produce("orders", *[b"x" * 100] * 30)
        async with open_client(console.bootstrap) as client:
            await Admin(client).commit_offsets("readers", {("orders", 0): 0, ("orders", 1): 0})
            await Admin(client).commit_offsets("others", {("orders", 0): 0, ("orders", 1): 30})
        visitor = await console.visitor()
        history = await visitor.get("/api/history")
        (sample,) = history["samples"]
        assert sample["at"] > 1_600_000_000_000
        values = sample["values"]
        assert (values["under_replicated"], values["offline"], values["open_transactions"]) == (0, 0, 0)
        assert values["bytes"] > 3_000
        assert 0 < values["disk_used"] < values["disk_total"]
        assert values["records_per_s"] >= 0
        assert values["stalls"] >= 0
        assert sample["groups"]["readers"] == 30
        assert values["lag"] == sum(sample["groups"].values())
        assert history["notes"] == {}
        (topic,) = (await visitor.get("/api/topics", sort="lag"))["rows"]
        assert topic["lag"] == 30, "that of the group which is furthest behind"
        group = await visitor.get("/api/groups/readers")
        assert group["history"][0]["lag"] == 30, "its plot begins with what the history has seen"


async def test_history_survives_what_a_look_raises(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[Exception] = [KeyError("defect"), ExceptionGroup("", [ConnectionLostError("gone")])]

    async def measure() -> Sample:
        if raised:
            raise raised.pop()
        return Sample(5, {"lag": 1})

    history = History(measure, nursery)
    assert await history.samples() == []
    assert (history.error, caplog.records) == ("gone", [])
    await trio.sleep(RETRY_SECONDS + 0.1)
    assert (history.error, len(caplog.records)) == ("'defect'", 1)
    await trio.sleep(RETRY_SECONDS)
    assert [sample.values for sample in await history.samples()] == [{"lag": 1}]


async def test_history_says_what_it_may_not_see(nursery: trio.Nursery) -> None:
    async def refused() -> Sample:
        raise ConnectionLostError("it went away")

    history = History(refused, nursery)
    assert await history.samples() == []
    assert history.error == "it went away"


async def test_own_login_keeps_history_for_those_with_rights(tmp_path: Path) -> None:
    async with console_beside(tmp_path, LOGIN) as console, open_client(console.bootstrap) as client:
        await console.make_topic("clicks")
        await console.produce("clicks", *[b"x"] * 9)
        admin = Admin(client)
        for group in ("open", "hidden"):
            await admin.commit_offsets(group, {("clicks", 0): 0})
        rights = [
            ("cluster", "kafka-cluster", "ann"),
            ("cluster", "kafka-cluster", "bob"),
            ("group", "open", "bob"),
        ]
        await admin.create_acls(
            [
                Acl(kind, name, "literal", f"User:{user}", "*", "describe", "allow")
                for kind, name, user in rights
            ]
        )
        assert console.host.broker is not None
        operator = SaslCredentials("PLAIN", "operator", PASSWORD)
        target = replace(target_of(console.host.broker), own=operator)
        server = ConsoleServer(Address("127.0.0.1", 0), ShownCluster(lambda: target), keeps_history=True)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            seen = {}
            for user in ("operator", "ann", "bob", "eve"):
                visitor = Visitor(server.url)
                await visitor.begin(user=user, password=PASSWORD)
                seen[user] = (await visitor.get("/api/history"))["samples"][0]
            nursery.cancel_scope.cancel()
    assert seen["operator"]["groups"] == {"open": 9, "hidden": 9}
    assert seen["ann"] == {**seen["operator"], "groups": {}}, (
        "the same sample, without groups she may not describe"
    )
    assert seen["bob"] == {**seen["operator"], "groups": {"open": 9}}
    assert seen["eve"]["at"] > seen["operator"]["at"], (
        "she may not describe the cluster: her own, from now on"
    )
    assert (seen["eve"]["groups"], seen["eve"]["values"].get("disk_total")) == ({}, None)
