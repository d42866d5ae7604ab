"""A mirror: topics, partitions, settings and groups of other clusters in one, each record once and as it was.

Its tasks run here; those of `test_mirror_kafka` and `test_mirror_crashes` in Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from barnabas_pipeline.errors import DataLossError, IncompleteError, UsageError
from barnabas_pipeline.jobs.choices import parse_choice
from barnabas_pipeline.jobs.mirror.model import GROUP_PREFIX, HEADER, MirrorOptions, MirrorSummary
from barnabas_pipeline.jobs.mirror.reading import coordinates_of
from barnabas_pipeline.jobs.mirror.rounds import Mirror, mirror
from barnabas_pipeline.jobs.sites import Cluster

from .conftest import Broker
from .mirroring import (
    assert_mirrored,
    commit,
    committed,
    create,
    high_watermark,
    mirror_options,
    records,
    send,
    send_in_transactions,
    source_ledger,
    target_ledger,
    values_from,
    wait_until,
)
from .topics import Here


@pytest.fixture
def spark() -> Here:
    """A stand-in for Spark."""
    return Here()


@pytest.fixture
def pair(new_broker: Callable[..., Broker], tmp_path: Path) -> tuple[Broker, Broker]:
    """A source and a target."""
    return new_broker(data=tmp_path / "source"), new_broker(data=tmp_path / "target")


def one_round(mirror: Mirror) -> MirrorSummary:
    """Run a round more, and return only what it did."""
    before = replace(mirror.summary)
    mirror.run()
    after = mirror.summary
    for name in (
        "mirrored",
        "created_topics",
        "added_partitions",
        "changed_settings",
        "groups_committed",
        "skipped_loops",
    ):
        setattr(before, name, getattr(after, name) - getattr(before, name))
    for name in ("failures", "groups_waiting", "groups_live", "groups_kept", "topics", "lost"):
        setattr(before, name, getattr(after, name))
    return before


def settings(bootstrap: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(20).values()
    return {entry.name: entry.value for entry in entries if entry.source == 1}


# --- topics and records ---------------------------------------------------------------------------------------------


def test_topics_of_two_sources_are_mirrored_record_by_record(
    spark: Any, pair: tuple[Broker, Broker], new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    eu, target = pair
    us = new_broker(data=tmp_path / "us")
    create(eu.bootstrap, "orders.new", 3, compression_type="lz4", max_message_bytes="2000000")
    create(eu.bootstrap, "orders.old", 1, message_timestamp_type="LogAppendTime")
    create(eu.bootstrap, "orders.test")
    create(us.bootstrap, "orders.new", 2, retention_ms="864000000000")
    send(eu.bootstrap, "orders.new", range(3000), 3, **{"compression.type": "zstd"})
    send(eu.bootstrap, "orders.old", range(50))
    send(us.bootstrap, "orders.new", range(500), 2)
    options = MirrorOptions(
        (Cluster("eu", eu.bootstrap), Cluster("us", us.bootstrap)),
        Cluster("", target.bootstrap),
        parse_choice(["orders\\..*"], [".*\\.test"]),
        rename="{source}.{topic}",
    )
    summary = mirror(spark, options)
    assert (summary.mirrored, summary.topics, summary.created_topics) == (3550, 3, 3)
    assert assert_mirrored(eu.bootstrap, "orders.new", target.bootstrap, "eu.orders.new") == 3000
    assert assert_mirrored(us.bootstrap, "orders.new", target.bootstrap, "us.orders.new") == 500
    old, copy = source_ledger(eu.bootstrap, "orders.old"), target_ledger(target.bootstrap, "eu.orders.old")
    assert [r._replace(timestamp=0) for r in copy[0]] == [r._replace(timestamp=0) for r in old[0]]
    for source, topic, name in ((eu, "orders.new", "eu"), (eu, "orders.old", "eu"), (us, "orders.new", "us")):
        assert settings(target.bootstrap, f"{name}.{topic}") == settings(source.bootstrap, topic)
    assert set(AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=20).topics) == {
        "eu.orders.new", "eu.orders.old", "us.orders.new", "__consumer_offsets", "__transaction_state",
    }  # fmt: skip
    assert mirror(spark, options).mirrored == 0
    clash = replace(options, rename="{topic}")
    with pytest.raises(IncompleteError, match=r"2 topics would be called 'orders\.new'"):
        mirror(spark, clash)


def test_odd_header_names_sizes_and_timestamps_are_kept(spark: Any, pair: tuple[Broker, Broker]) -> None:
    import trio

    from barnabas.client import ProducerSettings, open_producer

    source, target = pair
    create(source.bootstrap, "odd", max_message_bytes="8000000")
    large = bytes(range(256)) * 12_000

    async def produce() -> None:
        async with open_producer(source.bootstrap, ProducerSettings(request_bytes_max=8_000_000)) as producer:
            await producer.send(
                "odd", b"", key=b"", headers=[("\udcff\udc80", b"\xff"), ("", None)], timestamp_ms=-1
            )
            await producer.send("odd", large, timestamp_ms=0)

    trio.run(produce)
    mirror(spark, mirror_options(source, target, "odd"))
    assert assert_mirrored(source.bootstrap, "odd", target.bootstrap) == 2
    first = records(target.bootstrap, "odd")[0][0]
    assert first.headers[0] == ("\udcff\udc80", b"\xff")
    assert first.timestamp == -1


def test_new_topics_and_partitions_join_and_settings_follow(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    create(source.bootstrap, "a", 2, segment_bytes="1048576")
    send(source.bootstrap, "a", range(100), 2)
    job = Mirror(lambda: spark, mirror_options(source, target, "[a-m]", syncs_configs=True))
    try:
        assert one_round(job).created_topics == 1
        admin.create_partitions([NewPartitions("a", 4)])["a"].result(20)
        create(source.bootstrap, "b")
        create(source.bootstrap, "z")
        entries = [
            ConfigEntry("max.message.bytes", "77777", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("segment.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
        ]
        resource = ConfigResource(ResourceType.TOPIC, "a", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(20)
        send(source.bootstrap, "a", range(100, 300), 4)
        send(source.bootstrap, "b", range(10))
        done = one_round(job)
        assert (done.mirrored, done.created_topics, done.added_partitions, done.topics) == (210, 1, 2, 2)
        assert done.changed_settings == 2, "one is set, one is taken back"
        assert settings(target.bootstrap, "a") == {"max.message.bytes": "77777", "retention.ms": "-1"}
        assert one_round(job).changed_settings == 0
    finally:
        job.close()
    assert assert_mirrored(source.bootstrap, "a", target.bootstrap) == 300
    assert assert_mirrored(source.bootstrap, "b", target.bootstrap) == 10


def test_nothing_is_made_where_that_is_not_wanted(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "a", 2)
    options = mirror_options(source, target, "a", creates_topics=False)
    with pytest.raises(UsageError, match="has no topic 'a'"):
        mirror(spark, options)
    create(target.bootstrap, "a")
    with pytest.raises(UsageError, match="a has 1 partitions, a has 2"):
        mirror(spark, options)
    with pytest.raises(UsageError, match="there is no topic 'nowhere'"):
        mirror(spark, mirror_options(source, target, "nowhere"))
    with pytest.raises(UsageError, match="replication"):
        mirror(spark, mirror_options(source, target, "a", rename="b", replication_factor=3))


def test_lost_offsets_fail_their_topic_only(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    for topic in ("again", "good"):
        create(source.bootstrap, topic)
        send(source.bootstrap, topic, range(20))
    options = mirror_options(source, target, "again,good")
    assert mirror(spark, options).mirrored == 40
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.delete_topics(["again"])["again"].result(20)
    create(source.bootstrap, "again")
    send(source.bootstrap, "again", range(100, 140))  # more than before: every old offset is plausible
    send(source.bootstrap, "good", range(20, 30))
    with pytest.raises(DataLossError, match=r"again-0 mirrors .* missing: partition 0: \[20, \?\)"):
        mirror(spark, options)
    assert assert_mirrored(source.bootstrap, "good", target.bootstrap) == 30
    summary = mirror(spark, replace(options, on_data_loss="record"))
    assert summary.mirrored == 40
    assert len(summary.lost) == 1
    assert mirror(spark, options).mirrored == 0, "it goes on with the new topic"
    send(source.bootstrap, "again", range(140, 150))
    assert mirror(spark, options).mirrored == 10
    headers = [record.headers for record in records(target.bootstrap, "again")[0]]
    assert len(headers) == 20 + 50
    assert len({headers[-1] for headers in headers}) == 70


def test_retention_that_overtakes_a_mirror_is_data_loss(spark: Any, pair: tuple[Broker, Broker]) -> None:
    from confluent_kafka import TopicPartition

    source, target = pair
    create(source.bootstrap, "a")
    send(source.bootstrap, "a", range(20))
    options = mirror_options(source, target, "a")
    mirror(spark, options)
    send(source.bootstrap, "a", range(20, 60))
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.delete_records([TopicPartition("a", 0, 50)])[TopicPartition("a", 0)].result(20)
    with pytest.raises(DataLossError, match=r"partition 0: \[20, 50\)"):
        mirror(spark, options)
    summary = mirror(spark, replace(options, on_data_loss="record"))
    assert (summary.mirrored, len(summary.lost)) == (10, 1)


def test_a_round_is_bounded_and_the_next_goes_on(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "a", 3)
    send(source.bootstrap, "a", range(900), 3)
    job = Mirror(lambda: spark, mirror_options(source, target, "a", offsets_per_round_max=200))
    try:
        summary = job.run("available")
    finally:
        job.close()
    assert (summary.mirrored, summary.rounds, summary.behind) == (900, 5, 0)
    assert_mirrored(source.bootstrap, "a", target.bootstrap)


def test_positions_that_are_gone_are_found_in_the_headers(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "a", 2)
    send(source.bootstrap, "a", range(500), 2)
    options = mirror_options(source, target, "a")
    mirror(spark, options)
    forget_positions(target.bootstrap)
    send(source.bootstrap, "a", range(500, 520), 2)
    assert mirror(spark, options).mirrored == 20
    assert_mirrored(source.bootstrap, "a", target.bootstrap)
    forget_positions(target.bootstrap)
    assert mirror(spark, options).mirrored == 0
    assert mirror(spark, options).transactions == 0, "the position is committed again"
    send(target.bootstrap, "a", range(1))
    forget_positions(target.bootstrap)
    with pytest.raises(IncompleteError, match="not from a mirror"):
        mirror(spark, options)
    send(source.bootstrap, "a", range(520, 530), 2)
    assert mirror(spark, replace(options, shares_topics=True)).mirrored == 10


def forget_positions(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
    mine = [group for group in groups if group.startswith(GROUP_PREFIX)]
    assert mine
    for done in admin.delete_consumer_groups(mine).values():
        done.result(20)


def test_retention_in_the_target_sends_nothing_again(spark: Any, pair: tuple[Broker, Broker]) -> None:
    from confluent_kafka import TopicPartition

    source, target = pair
    create(source.bootstrap, "a")
    send(source.bootstrap, "a", range(50))
    options = mirror_options(source, target, "a")
    mirror(spark, options)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.delete_records([TopicPartition("a", 0, -1)])[TopicPartition("a", 0)].result(20)
    assert mirror(spark, options).mirrored == 0
    send(source.bootstrap, "a", range(50, 55))
    assert mirror(spark, options).mirrored == 5
    assert len(records(target.bootstrap, "a")[0]) == 5


# --- loops ----------------------------------------------------------------------------------------------------------


def test_an_active_pair_sends_nothing_back(spark: Any, pair: tuple[Broker, Broker]) -> None:
    a, b = pair
    create(a.bootstrap, "t")
    create(b.bootstrap, "t")
    send(a.bootstrap, "t", range(10))
    send(b.bootstrap, "t", range(100, 120))
    there = Mirror(lambda: spark, mirror_options(a, b, "t", shares_topics=True))
    back = Mirror(lambda: spark, mirror_options(b, a, "t", shares_topics=True))
    try:
        assert one_round(there).mirrored == 10
        first = one_round(back)
        assert (first.mirrored, first.skipped_loops) == (20, 10)
        second = one_round(there)
        assert (second.mirrored, second.skipped_loops) == (0, 20)
        send(a.bootstrap, "t", range(10, 15))
        send(b.bootstrap, "t", range(120, 125))
        for _ in range(3):
            one_round(there)
            one_round(back)
    finally:
        there.close()
        back.close()
    everything = {*range(15), *range(100, 125)}
    for broker in pair:
        numbers = [
            int(record.headers[0][1] or 0)
            for record in records(broker.bootstrap, "t")[0]
            if record.headers and record.headers[0][0] == "n"
        ]
        assert len(records(broker.bootstrap, "t")[0]) == len(everything)
        assert sorted(numbers) == sorted(n for n in everything if n % 3 == 0)


def test_a_ring_of_three_ends_where_the_record_began(
    spark: Any, pair: tuple[Broker, Broker], new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    ring = (*pair, new_broker(data=tmp_path / "third"))
    for n, broker in enumerate(ring):
        create(broker.bootstrap, "t")
        send(broker.bootstrap, "t", range(n * 100, n * 100 + 5))
    steps = [mirror_options(ring[n], ring[(n + 1) % 3], "t", shares_topics=True) for n in range(3)]
    for _ in range(3):
        for step in steps:
            mirror(spark, step)
    for broker in ring:
        copies = records(broker.bootstrap, "t")[0]
        assert len(copies) == 15
        assert max(sum(name == HEADER for name, _ in record.headers) for record in copies) == 2


# --- groups ---------------------------------------------------------------------------------------------------------


def test_every_offset_is_translated_exactly_over_gaps(
    spark: Any, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    source = new_broker("log.cleaner.backoff.ms=200", data=tmp_path / "source")
    target = new_broker(data=tmp_path / "target")
    gaps = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.01"}
    create(source.bootstrap, "t", **gaps)
    create(target.bootstrap, "t")
    send_in_transactions(source.bootstrap, "t", range(40), keys=40)
    written = 40

    def is_compacted() -> bool:
        nonlocal written
        send_in_transactions(source.bootstrap, "t", range(written, written + 10))
        written += 10
        return len(records(source.bootstrap, "t")[0]) < written // 3

    wait_until(is_compacted, "the cleaner has not cleaned")
    send_in_transactions(source.bootstrap, "t", range(5000, 5040))
    end = high_watermark(source.bootstrap, "t")
    for offset in range(end + 1):
        commit(source.bootstrap, f"g{offset}", "t", offset, metadata=f"m{offset}")
    summary = mirror(spark, mirror_options(source, target, "t", groups="g.*"))
    assert (summary.groups_committed, summary.groups_waiting) == (end + 1, 0)
    copies = [(r.offset, coordinates_of(r)[-1].offset) for r in records(target.bootstrap, "t")[0]]
    assert len(copies) < end // 2, "there are gaps"
    for offset in range(end + 1):
        there, metadata = committed(target.bootstrap, f"g{offset}", "t")
        assert metadata == f"m{offset}"
        to_read = [source_offset for here, source_offset in copies if here >= there]
        assert to_read == [source_offset for _, source_offset in copies if source_offset >= offset], offset
    assert there == high_watermark(target.bootstrap, "t"), "nothing is left to read, and there is no lag"


def test_live_and_further_groups_stay_and_ahead_ones_wait(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "t")
    send(source.bootstrap, "t", range(100))
    for group, offset in (("live", 50), ("further", 50), ("ahead", 90), ("other", 10), ("new", 60)):
        commit(source.bootstrap, group, "t", offset)
    options = mirror_options(source, target, "t", groups="live|further|ahead|new", offsets_per_round_max=80)
    job = Mirror(lambda: spark, options, is_bounded=False)
    member = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "live", "enable.auto.commit": False}
    )
    try:
        done = job.round().summary
        assert (done.mirrored, done.groups_committed, done.groups_waiting) == (80, 3, 1)
        assert committed(target.bootstrap, "new", "t")[0] == 60
        assert committed(target.bootstrap, "other", "t")[0] < 0
        commit(target.bootstrap, "further", "t", 75)
        commit(source.bootstrap, "further", "t", 70)
        commit(source.bootstrap, "live", "t", 55)
        member.subscribe(["t"])
        wait_until(lambda: bool(member.poll(0.1) or member.assignment()), "the group has got no member")
        done = job.round().summary
        assert (done.groups_committed, done.groups_waiting, done.groups_live, done.groups_kept) == (
            1,
            0,
            1,
            1,
        )
        there = committed(target.bootstrap, "ahead", "t")[0]
        assert values_from(target.bootstrap, "t", there) == values_from(source.bootstrap, "t", 90)
        assert committed(target.bootstrap, "further", "t")[0] == 75
        member.close()
        done = job.round().summary
        assert (done.groups_committed, done.groups_live) == (1, 0)
        assert committed(target.bootstrap, "live", "t")[0] == 55
    finally:
        job.close()
    back = mirror_options(source, target, "t", groups="further", moves_groups_back=True)
    assert mirror(spark, back).groups_committed == 1
    assert committed(target.bootstrap, "further", "t")[0] == 70


def test_an_open_transaction_of_the_source_is_waited_for(spark: Any, pair: tuple[Broker, Broker]) -> None:
    source, target = pair
    create(source.bootstrap, "t")
    send(source.bootstrap, "t", range(5))
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"later", partition=0)
    producer.flush(30)
    send(source.bootstrap, "t", range(5, 10))
    options = mirror_options(source, target, "t")
    assert mirror(spark, options).mirrored == 5
    producer.commit_transaction(30)
    wait_until(lambda: len(records(source.bootstrap, "t")[0]) == 11, "the transaction is not to be seen")
    assert mirror(spark, options).mirrored == 6
    assert_mirrored(source.bootstrap, "t", target.bootstrap)
