"""Metrics of a broker of which everything is known: each under its name, with its labels and its value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.metrics import of_broker, slices
from barnabas.metrics.families import Families
from barnabas.metrics.of_broker import MetricsParts, broker_families
from barnabas.security.authorizer import AllowEverything
from barnabas.serving.meter import RequestMeter
from barnabas.serving.quotas.connections import Throttling
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch
from tests.support.plain_requests import ask, codes

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
NODE = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"
TOPICS = "kafka_server_brokertopicmetrics_"
GROUPS = "kafka_server_group_coordinator_metrics_"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager_"


class Connections:
    """Numbers of connections that are all different."""

    def __init__(self) -> None:
        self.accepted = {"INSIDE": 7}
        self.delayed = {"INSIDE": self._times(1, 20), "OUTSIDE": self._times(5, 60)}
        self.throttled = {"INSIDE": self._times(3, 40), "OUTSIDE": self._times(7, 80)}

    def _times(self, count: int, ms: int) -> Throttling:
        times = Throttling()
        times.count, times.ms = count, ms
        return times

    def open_on(self, listener: str) -> int:
        return {"INSIDE": 3, "OUTSIDE": 4}[listener]


class Instances:
    """Client instances of which only the numbers are known."""

    counts = SimpleNamespace(unknown_subscriptions=1, throttled=2, evicted=3)

    def __len__(self) -> int:
        return 11


def sources_of(asked: Asked, **more: Any) -> MetricsParts:
    services = asked.services
    parts = {
        "broker_id": 1,
        "metadata": services.metadata,
        "logs": services.logs,
        "replicas": services.replicas,
        "connections": Connections(),
        "listener_names": ["INSIDE", "OUTSIDE"],
        "quotas": SimpleNamespace(throttled_clients=dict, rates=dict),
        "authorizer": AllowEverything(),
        "telemetry": SimpleNamespace(if_made=None),
        "cleaner": lambda: None,
        "budget": services.budget,
        "stall_counts": {},
        "log_limit": asked.log_limit,
        "memory": asked.broker.memory,
    }
    return MetricsParts(**{**parts, **more})


async def shown(asked: Asked, meter: RequestMeter | None = None, **more: Any) -> dict[Any, float]:
    """Values by name and labels, of the families that are not about quotas."""
    shards = await asked.services.group_coordinator.machines()
    families = await broker_families(sources_of(asked, **more), meter or RequestMeter(lambda _: None), shards)
    return samples(families)


def samples(families: Families) -> dict[Any, float]:
    values: dict[Any, float] = {}
    for family in families:
        for name, labels, value in family.samples():
            key = (name, *(label for _, label in labels))
            assert key not in values, key
            values[key] = value
    return values


@pytest.fixture
async def asked(tmp_path, monkeypatch):
    monkeypatch.setattr(of_broker, "client_quota_families", lambda *_: None)  # has tests of its own
    monkeypatch.setattr(slices, "AT_ONCE", 2)
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        for name, partitions in (("t", 3), ("u", 1), ("v", 2)):
            await ask_for_topic(asked, name, partitions=partitions)
        yield asked


async def produce(asked: Asked, name: str, index: int, *values: bytes) -> int:
    records = bytes(batch(*values))
    data = [{"Name": name, "PartitionData": [{"Index": index, "Records": records}]}]
    assert codes(await ask(asked, "Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": data})) == [0]
    return len(records)


async def test_topics_and_logs_are_counted_each_by_itself(asked):
    first = await produce(asked, "t", 0, b"a", b"b")
    second = await produce(asked, "t", 1, b"c")
    third = await produce(asked, "u", 0, b"d", b"e", b"f")
    parts = [{"PartitionIndex": 0, "Offset": 2}]
    await ask(asked, "DeleteRecords", 2, {"Topics": [{"Name": "u", "Partitions": parts}], "TimeoutMs": 5000})
    meter = RequestMeter(lambda _: None)
    meter.fetched_bytes = {"u": 17, "gone": 5}
    values = await shown(asked, meter)
    assert meter.fetched_bytes == {"u": 17}, "of topics that are gone nothing is kept"
    for name, size, count, sent in (("t", first + second, 3, 0), ("u", third, 3, 17), ("v", 0, 0, 0)):
        assert values[f"{TOPICS}bytesin_total", name] == size
        assert values[f"{TOPICS}messagesin_total", name] == count
        assert values[f"{TOPICS}bytesout_total", name] == sent
    log = "kafka_log_log_"
    for name, index, size, start, end in (
        ("t", 0, first, 0, 2),
        ("t", 1, second, 0, 1),
        ("u", 0, third, 2, 3),
    ):
        labels = (name, str(index))
        assert (values[f"{log}size", *labels], values[f"{log}numlogsegments", *labels]) == (size, 1)
        assert (values[f"{log}logstartoffset", *labels], values[f"{log}logendoffset", *labels]) == (
            start,
            end,
        )
    [path] = asked.services.logs.dirs
    assert values["kafka_log_logmanager_logdirectoryoffline", path] == 0
    assert values["kafka_log_logmanager_offlinelogdirectorycount",] == 0


async def test_partitions_are_counted_when_led_or_under_replicated(asked):
    values = await shown(asked)
    assert values[f"{NODE}globaltopiccount",] == 3
    assert values[f"{NODE}globalpartitioncount",] == 6
    assert values[f"{NODE}activebrokercount",] == values[f"{NODE}activecontrollercount",] == 1
    assert values[f"{REPLICAS}partitioncount",] == values[f"{REPLICAS}leadercount",] == 6
    for name in (f"{NODE}offlinepartitionscount", f"{REPLICAS}offlinereplicacount"):
        assert values[name,] == 0
    assert values[f"{REPLICAS}underreplicatedpartitions",] == 0
    assert values["kafka_server_kafkaserver_brokerstate",] == 3
    [info] = [key for key in values if key[0] == "kafka_server_app_info"]
    assert info[2:] == (asked.services.metadata.image.cluster_id, "1")
    led = list(asked.services.replicas)
    some = await shown(asked, replicas=led[1:])
    assert (some[f"{REPLICAS}leadercount",], some[f"{NODE}offlinepartitionscount",]) == (5, 1)
    elsewhere = await shown(asked, broker_id=2)
    assert elsewhere[f"{NODE}offlinepartitionscount",] == 0


async def test_groups_are_counted_by_protocol_and_state(asked):
    for group, count in (("kept", 2), ("two", 1)):
        parts = [{"PartitionIndex": index, "CommittedOffset": 1} for index in range(count)]
        commit = {
            "GroupId": group,
            "GenerationIdOrMemberEpoch": -1,
            "Topics": [{"Name": "t", "Partitions": parts}],
        }
        assert codes(await ask(asked, "OffsetCommit", 8, commit)) == [0] * count
    for group in ("c", "d"):
        beat = {"GroupId": group, "MemberId": "m", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
        beat |= {"RebalanceTimeoutMs": 10_000, "TopicPartitions": []}
        assert (await ask(asked, "ConsumerGroupHeartbeat", 1, beat)).error_code == 0
    beat = {"GroupId": "s", "MemberId": "m", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
    assert (await ask(asked, "ShareGroupHeartbeat", 1, beat)).error_code == 0
    join = {
        "GroupId": "g",
        "SessionTimeoutMs": 10_000,
        "RebalanceTimeoutMs": 10_000,
        "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": b""}],
    }
    assert (await ask(asked, "JoinGroup", 3, join)).error_code == 0
    values = await shown(asked)
    protocols = ("classic", "consumer", "share", "streams")
    assert [values[f"{GROUPS}group_count", name] for name in protocols] == [3, 2, 1, 0]
    assert values[f"{GROUPS}consumer_group_count", "Stable"] == 2
    assert values[f"{GROUPS}share_group_count", "Stable"] == 1
    assert not any(key[0] == f"{GROUPS}classic_group_count" for key in values), "they have names of their own"
    assert (values[f"{CLASSIC}numgroups",], values[f"{CLASSIC}numoffsets",]) == (3, 3)
    states = ("empty", "preparingrebalance", "completingrebalance", "stable", "dead")
    assert [values[f"{CLASSIC}numgroups{state}",] for state in states] == [2, 0, 1, 0, 0]


async def test_cleaner_and_telemetry_metrics_appear_once_at_work(asked):
    names = [key[0] for key in await shown(asked)]
    assert not any("logcleaner" in name or "client_metrics" in name for name in names)
    totals = SimpleNamespace(count=1, bytes_read=20, bytes_written=5, last_recopy_percent=25)
    cleaner = SimpleNamespace(totals=totals, uncleanable={"a", "b"})
    telemetry = SimpleNamespace(
        instances=Instances(),
        taken=4,
        unreadable=5,
        pushed=SimpleNamespace(evicted=6, series_count=7, size_bytes=8, evicted_series=9),
    )
    values = await shown(asked, cleaner=lambda: cleaner, telemetry=SimpleNamespace(if_made=telemetry))
    prefix = "kafka_log_logcleaner_"
    assert values[f"{prefix}cleanings_total",] == 1
    assert values[f"{prefix}cleaned_read_bytes_total",] == 20
    assert values[f"{prefix}cleaned_written_bytes_total",] == 5
    assert values[f"{prefix}cleaner_recopy_percent",] == 25
    assert values["kafka_log_logcleanermanager_uncleanable_partitions_count",] == 2
    prefix = "kafka_server_client_metrics_"
    told = {name: values[f"{prefix}{name}_total",] for name in ("unknown_subscription_request", "throttle")}
    told |= {name: values[f"{prefix}{name}_total",] for name in ("plugin_export", "plugin_error", "evicted")}
    assert [*told.values()] == [1, 2, 4, 5, 9]
    assert values[f"{prefix}instance_count",] == 11
    prefix = "barnabas_client_metrics_"
    assert [values[f"{prefix}{name}",] for name in ("series", "bytes", "evicted_series_total")] == [7, 8, 9]
