"""Metrics of share groups: what members acknowledge, what is in flight, what goes to the dead letter queue."""

from __future__ import annotations

import pytest
import trio

from barnabas.coordinators.share.counts import GROUPS_MAX, ShareCounts
from barnabas.metrics.families import Families
from barnabas.metrics.of_shares import share_families
from tests.support.broker import ask_for_topic, broker_to_ask
from tests.unit.handlers.test_dead_letters import AUTO, QUEUE, all_settled, group_of, letters
from tests.unit.handlers.test_share_fetch import ACCEPT, REJECT, RELEASE, SETTINGS, Group

GROUPS, PARTITIONS = "kafka_server_sharegroupmetrics_", "kafka_server_sharepartitionmetrics_"
SLOT = ("s", "t", "0")


async def shown(group: Group, *, is_summed: bool = False) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    services, families = group.asked.services, Families()
    await share_families(families, services.shares, services.budget, is_summed=is_summed)
    return {
        (name.removeprefix(GROUPS).removeprefix(PARTITIONS), *(label for _, label in labels)): value
        for family in families
        for name, labels, value in family.samples()
    }


@pytest.fixture
async def group(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4", **AUTO}) as asked:
        yield await group_of(asked)


async def test_records_are_counted_by_what_members_say(group):
    await group.fetch(0, 0)
    await group.say(1, 0, acks=[(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE)])
    await letters(group.asked, 1)
    with trio.fail_after(5):
        while (await shown(group)).get(("deadletterqueuerecordcount_total", "s")) != 1:
            await trio.sleep(0.01)
    values = await shown(group)
    for verdict, count in (("Accept", 1), ("Reject", 1), ("Release", 1), ("Renew", 0), ("Gap", 0)):
        assert values["recordacknowledgements_total", verdict] == count
    assert values["deadletterqueuetotalproducerequests_total", "s"] == 1
    assert values["deadletterqueuefailedproducerequests_total", "s"] == 0
    assert values["inflightbatchmessagecount_count", *SLOT] == 1
    assert values["inflightbatchmessagecount_sum", *SLOT] == 3
    assert values["partitionloadtimems_count",] == 1
    assert values["requesttopicpartitionsfetchratio_count", "s"] == 1
    assert values["requesttopicpartitionsfetchratio_sum", "s"] == 100
    assert values["topicpartitionsacquiretimems_count", "s"] == 1
    assert values["kafka_server_sharesessioncache_sharesessionscount",] == 1
    assert values["kafka_server_sharesessioncache_sharepartitionscount",] == 1
    # The state of a rejected record is written once its dead letter is.
    with trio.fail_after(5):
        while (await shown(group))["kafka_server_share_coordinator_metrics_write_latency_count",] < 2:
            await trio.sleep(0.01)
    assert (await shown(group))["kafka_server_share_coordinator_metrics_write_total",] >= 2


async def test_records_in_flight_are_told_until_they_are_done(group):
    await group.fetch(0, 0)
    values = await shown(group)
    assert (values["inflightmessagecount", *SLOT], values["inflightbatchcount", *SLOT]) == (3, 1)
    assert values["acquisitionlocktimeout_total", *SLOT] == 0
    await group.say(1, 0, acks=[(0, 2, ACCEPT)])
    await all_settled(group)
    assert (await shown(group))["inflightmessagecount", *SLOT] == 0


async def test_appends_that_fail_are_counted(tmp_path):
    async with broker_to_ask(tmp_path, {**SETTINGS, "kafka.version": "4.4"}) as asked:
        own = {f"{QUEUE}group.enable": "true", "max.message.bytes": "1"}
        await ask_for_topic(asked, "dlq.s", partitions=1, settings=own)
        group = await group_of(asked)
        await group.fetch(0, 0)
        await group.say(1, 0, acks=[(0, 2, REJECT)])
        await all_settled(group)
        values = await shown(group)
        assert values["deadletterqueuetotalproducerequests_total", "s"] == 1
        assert values["deadletterqueuefailedproducerequests_total", "s"] == 1
        assert values["deadletterqueuerecordcount_total", "s"] == 0


async def test_metrics_are_summed_without_labels(group):
    await group.fetch(0, 0)
    values = await shown(group, is_summed=True)
    assert values["inflightmessagecount",] == 3
    assert values["requesttopicpartitionsfetchratio_sum",] == 100


def test_group_counted_longest_ago_makes_room():
    share_counts = ShareCounts()
    for number in (*range(GROUPS_MAX), 0, GROUPS_MAX):
        share_counts.of_group(str(number)).letters += 1
    assert len(share_counts.groups) == GROUPS_MAX
    assert share_counts.groups["0"].letters == 2
    assert "1" not in share_counts.groups
