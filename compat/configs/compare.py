"""Settings as clients see and change them, on Apache Kafka and on Barnabas: python -m compat.configs.compare.

Both start from the same server.properties; the exit code is 1 when an answer differs in a way that is not known.
"""

from __future__ import annotations

from compat.configs.known_differences import KNOWN
from compat.kit.compare import Step
from compat.kit.program import main
from compat.kit.wire import Values

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
EVERYTHING = [(BROKER, "1"), (BROKER, ""), (TOPIC, "plain"), (TOPIC, "tuned"), (GROUP, "g"), (METRICS, "m")]
SETTINGS = {
    "log.roll.hours": "100",
    "log.retention.minutes": "600",
    "log.retention.hours": "20",
    "log.flush.scheduler.interval.ms": "70000",
    "log.cleaner.io.max.bytes.per.second": "1e8",
    "log.cleaner.min.cleanable.ratio": "0.50",
    "num.io.threads": "009",
    "zookeeper.session.timeout.ms": "9000",
    "internal.metadata.delete.delay.millis": "50000",
    "listener.name.plaintext.num.network.threads": "4",
    "some.plugins.setting": "1",
}


def describe(
    resources: list[tuple[int, str]], keys: list[str] | None = None, synonyms: bool = True
) -> Values:
    """A DescribeConfigs request."""
    return {
        "Resources": [
            {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
            for kind, name in resources
        ],
        "IncludeSynonyms": synonyms,
    }


def change(kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False) -> Values:
    """An IncrementalAlterConfigs request for one resource."""
    configs = [
        {"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes
    ]
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
    return {"Resources": [resource], "ValidateOnly": validate}


def replace(kind: int, name: str, *settings: tuple[str, str | None], validate: bool = False) -> Values:
    """An AlterConfigs request for one resource."""
    configs = [{"Name": key, "Value": value} for key, value in settings]
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
    return {"Resources": [resource], "ValidateOnly": validate}


def _topic(name: str, *configs: tuple[str, str]) -> Values:
    settings = [{"Name": key, "Value": value} for key, value in configs]
    return {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": settings}


def _describing() -> list[Step]:
    topics = [
        _topic("plain"),
        _topic("tuned", ("retention.ms", "007"), ("cleanup.policy", "compact, delete")),
    ]
    steps = [Step("create", "CreateTopics", 7, {"Topics": topics, "timeoutMs": 9000})]
    for version in range(1, 5):
        steps.append(Step(f"describe v{version}", "DescribeConfigs", version, describe(EVERYTHING)))
        short = describe(EVERYTHING, synonyms=False)
        steps.append(Step(f"describe v{version} without synonyms", "DescribeConfigs", version, short))
        some = describe(EVERYTHING, ["retention.ms", "node.id", "match", "no.such"])
        steps.append(Step(f"describe v{version} some", "DescribeConfigs", version, some))
        none = describe(EVERYTHING, [], synonyms=False)
        steps.append(Step(f"describe v{version} no keys", "DescribeConfigs", version, none))
    odd = [
        (TOPIC, "no-such"), (TOPIC, "in valid"), (TOPIC, ""), (TOPIC, ".."), (BROKER, "2"), (BROKER, "x"), (BROKER, "-1"),
        (BROKER, "01"), (LOGGER, ""), (LOGGER, "2"), (LOGGER, "x"), (GROUP, ""), (METRICS, ""), (0, "x"), (1, "x"),
        (99, "x"), (-1, ""),
    ]  # fmt: skip
    steps += [
        Step(f"describe {kind} {name!r}", "DescribeConfigs", 4, describe([(kind, name)]))
        for kind, name in odd
    ]
    root = describe([(LOGGER, "1")], ["root"])
    steps.append(Step("describe root logger", "DescribeConfigs", 4, root))
    return steps


# What is tried on each kind of resource: the resource, then changes of which each list is one request.
CHANGES: list[tuple[int, str, list[list[tuple[str, int, str | None]]]]] = [
    (TOPIC, "plain", [
        [("retention.ms", SET, "1000"), ("max.message.bytes", SET, "2000")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, "x")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", SET, "")],
        [("cleanup.policy", DELETE, "")],
        [("cleanup.policy", SET, "keep")],
        [("cleanup.policy", APPEND, "keep")],
        [("cleanup.policy", SET, "compact,,delete")],
        [("cleanup.policy", SET, ",")],
        [("cleanup.policy", SET, "delete,delete")],
        [("cleanup.policy", SET, "compact,delete,compact")],
        [("cleanup.policy", DELETE, None)],
        [("retention.ms", APPEND, "1")],
        [("retention.ms", SUBTRACT, "1")],
        [("retention.ms", SET, None)],
        [("retention.ms", SET, "")],
        [("retention.ms", SET, "x")],
        [("retention.ms", SET, "-2")],
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("retention.ms", 9, "1")],
        [("retention.ms", -1, "1")],
        [("no.such", SET, "1")],
        [("no.such", DELETE, None)],
        [("no.such", APPEND, "1")],
        [("", SET, "1")],
        [("message.format.version", SET, "3.0")],
        [("message.downconversion.enable", SET, "true")],
        [("retention.ms", SET, "5000"), ("no.such", SET, "1")],
        [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "10")],
        [("segment.bytes", SET, "1048575")],
        [("segment.bytes", SET, "1048576")],
        [("internal.segment.bytes", SET, "1000")],
        [("internal.segment.bytes", DELETE, None)],
        [("remote.storage.enable", SET, "true")],
        [("remote.storage.enable", SET, "false")],
        [("remote.log.copy.disable", SET, "true")],
        [("remote.log.delete.on.disable", SET, "true")],
        [("local.retention.ms", SET, "10000000000")],
        [("local.retention.bytes", SET, "10")],
        [("leader.replication.throttled.replicas", SET, "0:1,1:1")],
        [("leader.replication.throttled.replicas", SET, "*")],
        [("leader.replication.throttled.replicas", SET, "0:1,*")],
        [("leader.replication.throttled.replicas", SET, "x")],
        [("leader.replication.throttled.replicas", APPEND, "1:2")],
        [("follower.replication.throttled.replicas", SET, "")],
        [("follower.replication.throttled.replicas", SET, "0:1,0:1")],
        [("follower.replication.throttled.replicas", SET, "0:1,")],
        [("compression.type", SET, "ZSTD")],
        [("compression.type", SET, "zstd"), ("compression.zstd.level", SET, "22")],
        [("compression.gzip.level", SET, "0")],
        [("compression.lz4.level", SET, "18")],
        [("min.insync.replicas", SET, "0")],
        [("min.insync.replicas", SET, "5")],
        [("min.cleanable.dirty.ratio", SET, "1.5")],
        [("min.cleanable.dirty.ratio", SET, "1e-4")],
        [("preallocate", SET, "yes")],
        [("preallocate", SET, " True ")],
        [("message.timestamp.type", SET, "logappendtime")],
        [("message.timestamp.type", SET, "LogAppendTime")],
        [("unclean.leader.election.enable", SET, "true")],
        [("flush.ms", SET, "10"), ("segment.ms", SET, "0")],
        [("segment.jitter.ms", SET, "10")],
        [("index.interval.bytes", SET, "2147483648")],
        [],
    ]),
    (TOPIC, "no-such", [[("retention.ms", SET, "1")], [], [("no.such", SET, "1")]]),
    (TOPIC, "in valid", [[("retention.ms", SET, "1")]]),
    (TOPIC, "", [[("retention.ms", SET, "1")], []]),
    (BROKER, "1", [
        [("message.max.bytes", SET, "3000000"), ("log.cleaner.threads", SET, "2")],
        [("message.max.bytes", SET, "-1")],
        [("message.max.bytes", SET, "x")],
        [("node.id", SET, "4")],
        [("num.partitions", SET, "4")],
        [("num.partitions", DELETE, None)],
        [("no.such", SET, "1")],
        [("no.such", DELETE, None)],
        [("log.retention.ms", SET, "123456")],
        [("log.retention.hours", SET, "5")],
        [("log.cleanup.policy", APPEND, "compact")],
        [("log.cleanup.policy", SUBTRACT, "compact")],
        [("log.cleanup.policy", DELETE, None)],
        [("message.max.bytes", APPEND, "1")],
        [("leader.replication.throttled.rate", SET, "1000")],
        [("leader.replication.throttled.rate", SET, "-1")],
        [("leader.replication.throttled.rate", DELETE, None)],
        [("listener.name.plaintext.max.connections", SET, "600")],
        [("listener.name.plaintext.max.connections", DELETE, None)],
        [("listener.name.other.num.network.threads", SET, "3")],
        [("zookeeper.connect", SET, "a:1")],
        [("internal.metadata.delete.delay.millis", SET, "7")],
        [("max.connections", SET, "10000")],
        [("max.connections.per.ip.overrides", SET, "127.0.0.1:1000")],
        [("log.message.timestamp.type", SET, "LogAppendTime")],
        [("log.message.timestamp.type", DELETE, None)],
        [("min.insync.replicas", SET, "2")],
        [("log.cleaner.threads", DELETE, None)],
        [("num.io.threads", SET, "8")],
        [("num.io.threads", SET, "900")],
        [("background.threads", SET, "1")],
        [("compression.type", SET, None)],
        [("sasl.jaas.config", SET, "x")],
        [("log.cleanup.policy", SET, "delete,delete")],
        [("log.cleanup.policy", DELETE, None)],
        [("log.segment.bytes", SET, "1000")],
        [("log.segment.bytes", DELETE, None)],
    ]),
    (BROKER, "", [
        [("message.max.bytes", SET, "2500000"), ("log.cleaner.io.max.bytes.per.second", SET, "1e7")],
        [("log.retention.ms", SET, "654321")],
        [("max.connections.per.ip", SET, "5000")],
        [("num.partitions", SET, "4")],
        [("no.such", SET, "1")],
        [("ssl.keystore.password", SET, "x")],
        [("listener.name.plaintext.max.connections", SET, "600")],
        [("log.cleanup.policy", APPEND, "compact")],
        [("log.cleanup.policy", DELETE, None)],
        [("message.max.bytes", SET, "x")],
        [("min.insync.replicas", SET, "1")],
        [("unclean.leader.election.enable", SET, "false")],
        [("log.retention.ms", DELETE, None)],
    ]),
    (BROKER, "2", [[("message.max.bytes", SET, "3000000")], []]),
    (BROKER, "x", [[("message.max.bytes", SET, "3000000")]]),
    (BROKER, "-1", [[("message.max.bytes", SET, "3000000")]]),
    (GROUP, "g", [
        [("consumer.session.timeout.ms", SET, "50000"), ("consumer.heartbeat.interval.ms", SET, "6000")],
        [("consumer.session.timeout.ms", SET, "44999")],
        [("consumer.session.timeout.ms", SET, "60001")],
        [("consumer.heartbeat.interval.ms", SET, "4999")],
        [("consumer.heartbeat.interval.ms", SET, "15001")],
        [("consumer.assignment.interval.ms", SET, "15001")],
        [("consumer.assignment.interval.ms", SET, "15000")],
        [("consumer.assignment.interval.ms", SET, "-1")],
        [("consumer.session.timeout.ms", DELETE, None)],
        [("share.session.timeout.ms", SET, "60000"), ("share.heartbeat.interval.ms", SET, "15000")],
        [("share.session.timeout.ms", SET, "44999")],
        [("share.heartbeat.interval.ms", SET, "15001")],
        [("share.record.lock.duration.ms", SET, "14999")],
        [("share.record.lock.duration.ms", SET, "60001")],
        [("share.record.lock.duration.ms", SET, "999")],
        [("share.delivery.count.limit", SET, "11")],
        [("share.delivery.count.limit", SET, "1")],
        [("share.delivery.count.limit", SET, "10")],
        [("share.partition.max.record.locks", SET, "99")],
        [("share.partition.max.record.locks", SET, "4001")],
        [("share.partition.max.record.locks", SET, "4000")],
        [("share.auto.offset.reset", SET, "earliest")],
        [("share.auto.offset.reset", SET, "EARLIEST")],
        [("share.auto.offset.reset", SET, "none")],
        [("share.auto.offset.reset", SET, "by_duration:P1DT2H")],
        [("share.auto.offset.reset", SET, "by_duration:PT0.5S")],
        [("share.auto.offset.reset", SET, "by_duration:P")],
        [("share.auto.offset.reset", SET, "by_duration:P1DT")],
        [("share.auto.offset.reset", SET, "by_duration:-PT1S")],
        [("share.auto.offset.reset", SET, "by_duration:PT-1S")],
        [("share.auto.offset.reset", SET, "by_duration:PT-1H61M")],
        [("share.auto.offset.reset", SET, "by_duration:P1Y")],
        [("share.auto.offset.reset", SET, "by_duration:")],
        [("share.auto.offset.reset", SET, "by_duration")],
        [("share.isolation.level", SET, "read_committed")],
        [("share.isolation.level", SET, "READ_COMMITTED")],
        [("share.isolation.level", SET, "serializable")],
        [("share.renew.acknowledge.enable", SET, "false")],
        [("share.renew.acknowledge.enable", SET, "no")],
        [("streams.session.timeout.ms", SET, "50000")],
        [("streams.session.timeout.ms", SET, "60001")],
        [("streams.heartbeat.interval.ms", SET, "4999")],
        [("streams.num.standby.replicas", SET, "3")],
        [("streams.num.standby.replicas", SET, "2")],
        [("streams.initial.rebalance.delay.ms", SET, "0")],
        [("streams.initial.rebalance.delay.ms", SET, "999999")],
        [("streams.assignment.interval.ms", SET, "15001")],
        [("no.such", SET, "1")],
        [("no.such", DELETE, None)],
        [("consumer.session.timeout.ms", APPEND, "1")],
        [("consumer.session.timeout.ms", SET, "x")],
        [],
    ]),
    (GROUP, "", [[("consumer.session.timeout.ms", SET, "50000")]]),
    (METRICS, "m", [
        [("interval.ms", SET, "1000"), ("metrics", SET, "org.apache.kafka.producer.,x"), ("match", SET, "client_id=a.*")],
        [("interval.ms", SET, "99")],
        [("interval.ms", SET, "3600001")],
        [("interval.ms", SET, "x")],
        [("match", APPEND, "client_software_name=apache.*")],
        [("match", SET, "client_id")],
        [("match", SET, "no_such=a")],
        [("match", SET, "client_id=[")],
        [("match", SET, "")],
        [("metrics", SUBTRACT, "x")],
        [("metrics", SET, "*")],
        [("metrics", SET, "a,a")],
        [("metrics", SET, "a,,b")],
        [("metrics", SET, "")],
        [("no.such", SET, "1")],
        [("interval.ms", DELETE, None)],
    ]),
    (METRICS, "", [[("interval.ms", SET, "1000")]]),
    (LOGGER, "1", [
        [("root", SET, "ERROR")],
        [("root", SET, "error")],
        [("root", SET, "OFF")],
        [("root", SET, "TRACE")],
        [("root", SET, "ALL")],
        [("root", SET, "LOUD")],
        [("root", SET, None)],
        [("root", DELETE, None)],
        [("root", APPEND, "INFO")],
        [("root", SUBTRACT, "INFO")],
        [("no.such.logger", SET, "INFO")],
        [("no.such.logger", DELETE, None)],
        [("root", SET, "WARN"), ("no.such.logger", SET, "INFO")],
        [("root", SET, "WARN")],
    ]),
    (LOGGER, "2", [[("root", SET, "ERROR")]]),
    (LOGGER, "", [[("root", SET, "ERROR")]]),
    (LOGGER, "x", [[("root", SET, "ERROR")]]),
    (0, "x", [[("a", SET, "b")]]),
    (99, "x", [[("a", SET, "b")], []]),
]  # fmt: skip


def _changing() -> list[Step]:
    steps = []
    for kind, name, requests in CHANGES:
        for changes in requests:
            text = ", ".join(
                f"{key} {['set', 'delete', 'append', 'subtract'][operation] if 0 <= operation < 4 else operation} {value}"
                for key, operation, value in changes
            )
            label = f"change {kind} {name!r}: {text}"
            asked = change(kind, name, *changes, validate=True)
            steps.append(Step(f"validate: {label}", "IncrementalAlterConfigs", 1, asked))
            steps.append(Step(label, "IncrementalAlterConfigs", 1, change(kind, name, *changes)))
            keys = [key for key, _, _ in changes] or None
            if kind != LOGGER or keys:
                steps.append(Step(f"after {label}", "DescribeConfigs", 4, describe([(kind, name)], keys)))
        if kind != LOGGER:
            steps.append(
                Step(f"after all changes of {kind} {name!r}", "DescribeConfigs", 4, describe([(kind, name)]))
            )
    steps.append(Step("after all changes", "DescribeConfigs", 4, describe(EVERYTHING)))
    twice = change(TOPIC, "plain", ("retention.ms", SET, "1"))
    twice["Resources"] *= 2
    twice["Resources"] += change(TOPIC, "tuned", ("retention.ms", SET, "9"))["Resources"]
    steps.append(Step("a resource twice", "IncrementalAlterConfigs", 1, twice))
    steps.append(
        Step("after a resource twice", "DescribeConfigs", 4, describe([(TOPIC, "plain"), (TOPIC, "tuned")]))
    )
    return steps


def _replacing() -> list[Step]:
    requests = [
        replace(TOPIC, "tuned", ("retention.ms", "5"), ("flush.ms", "6")),
        replace(TOPIC, "tuned", ("segment.ms", "7")),
        replace(TOPIC, "tuned", ("segment.ms", "8"), validate=True),
        replace(TOPIC, "tuned", ("segment.ms", "x")),
        replace(TOPIC, "tuned", ("no.such", "x")),
        replace(TOPIC, "tuned", ("segment.ms", None)),
        replace(TOPIC, "tuned", ("segment.ms", "1"), ("segment.ms", "2")),
        replace(TOPIC, "tuned"),
        replace(TOPIC, "no-such", ("segment.ms", "7")),
        replace(TOPIC, "in valid", ("segment.ms", "7")),
        replace(BROKER, "1", ("message.max.bytes", "1234567")),
        replace(BROKER, "1", ("node.id", "3")),
        replace(BROKER, "1"),
        replace(BROKER, "", ("message.max.bytes", "7654321"), ("min.insync.replicas", "1")),
        replace(BROKER, "", ("min.insync.replicas", "1")),
        replace(BROKER, "2", ("message.max.bytes", "7654321")),
        replace(LOGGER, "1", ("root", "INFO")),
        replace(GROUP, "g", ("consumer.session.timeout.ms", "55000")),
        replace(GROUP, "g"),
        replace(METRICS, "m", ("interval.ms", "2000")),
        replace(METRICS, "m"),
        replace(99, "x", ("a", "b")),
    ]
    steps = []
    for version in range(3):
        for number, request in enumerate(requests, start=1):
            kind, name = request["Resources"][0]["ResourceType"], request["Resources"][0]["ResourceName"]
            label = f"replace v{version} {number} {kind} {name!r}"
            steps.append(Step(label, "AlterConfigs", version, request))
            if kind != LOGGER:
                steps.append(Step(f"after {label}", "DescribeConfigs", 4, describe([(kind, name)])))
    return steps


def _listing() -> list[Step]:
    seed = [
        Step(
            "list: a group",
            "IncrementalAlterConfigs",
            1,
            change(GROUP, "listed", ("share.isolation.level", SET, "read_committed")),
        ),
        Step("list: metrics", "IncrementalAlterConfigs", 1, change(METRICS, "listed", ("metrics", SET, "*"))),
    ]
    asked = [
        [],
        [TOPIC],
        [BROKER],
        [LOGGER],
        [METRICS],
        [GROUP],
        [TOPIC, GROUP],
        [TOPIC, TOPIC],
        [0],
        [1],
        [99],
    ]
    steps = [Step(f"list {kinds}", "ListConfigResources", 1, {"ResourceTypes": kinds}) for kinds in asked]
    return [*seed, Step("list v0", "ListConfigResources", 0, {}), *steps]


def steps() -> list[Step]:
    """Return all steps, in order."""
    return [*_describing(), *_changing(), *_replacing(), *_listing()]


if __name__ == "__main__":
    main("compat.configs.compare", __doc__, SETTINGS, steps, KNOWN)
