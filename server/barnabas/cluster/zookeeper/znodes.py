"""The znodes of brokers, topics, the controller and requests to it: their paths, and their JSON to values and back. Pure.

The rule: the written formats are those of Kafka 3.9; all formats since 0.8 are read. Settings, ACLs and consumers are in
`resource_znodes`. Unreadable content raises ZnodeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.cluster.zookeeper.json_znodes import INT32_MAX, Fields, ZnodeError, encode, read
from barnabas.wire.ids import parse_uuid, uuid_text

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
PRODUCER_IDS = "/latest_producer_id_block"

DEFAULT_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PARTITIONS_MAX = 1_000_000
"""No topic has more: a larger index in a znode is taken for damage."""


def broker_path(broker_id: int) -> str:
    """The znode of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The znode of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    """The znode of a partition's leader and ISR."""
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def delete_topic_path(topic: str) -> str:
    """The znode that asks for a topic's end."""
    return f"{DELETE_TOPICS}/{topic}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of a broker, as advertised to clients."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration of a broker. `features` has the (min, max) version by name."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timestamp_ms: int = -1
    jmx_port: int = -1


def encode_broker(broker: BrokerRegistration, version: int = 5) -> bytes:
    """The JSON of a live broker; version 2 before Kafka 0.10.0, 4 before 2.7.

    Host and port at the top are of the first endpoint that is PLAINTEXT, for clients that know no others.
    """
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.protocol == "PLAINTEXT"), None)
    value: dict[str, object] = {
        "version": version,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
    }
    if version >= 2:
        value["endpoints"] = [_connection(endpoint) for endpoint in broker.endpoints]
    if version >= 3 and broker.rack is not None:
        value["rack"] = broker.rack
    if version >= 4:
        value["listener_security_protocol_map"] = {
            endpoint.listener: endpoint.protocol for endpoint in broker.endpoints
        }
    if version >= 5:
        value["features"] = {
            name: {"min_version": low, "max_version": high} for name, (low, high) in broker.features.items()
        }
    return encode(value)


def _connection(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Decode the registration of a broker, in versions 1 to 5."""
    fields = read(broker_path(broker_id), data)
    version = fields.version(5)
    if version == 1:
        endpoints: tuple[Endpoint, ...] = (
            Endpoint("PLAINTEXT", fields.text("host"), fields.int32("port"), "PLAINTEXT"),
        )
    else:
        named = fields.object("listener_security_protocol_map")
        protocols = {name.upper(): named.text(name).upper() for name in named.names()}
        if "listener_security_protocol_map" not in fields:
            protocols = {name: name for name in DEFAULT_PROTOCOLS}
        endpoints = tuple(_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))
    features = fields.object("features")
    ranges = {name: _feature_range(features.object(name)) for name in features.names()}
    return BrokerRegistration(
        endpoints,
        fields.optional_text("rack"),
        ranges,
        fields.integer("timestamp", -1),
        fields.int32("jmx_port", -1),
    )


def _feature_range(fields: Fields) -> tuple[int, int]:
    return fields.int32("min_version"), fields.int32("max_version")


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    listener = listener.upper()
    if (
        not separator
        or not colon
        or not port.isdecimal()
        or not int(port) < 65536
        or listener not in protocols
    ):
        raise fields.wrong(
            "endpoints", f"like LISTENER://HOST:PORT with a listener of the map, which {text!r} is not"
        )
    return Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port), protocols[listener])


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Brokers that have a partition's replicas; `adding` and `removing` while they are being moved (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's partitions by index, and its id; None if it was created before Kafka 2.8."""

    partitions: Mapping[int, ReplicaAssignment]
    topic_id: bytes | None = None


def encode_topic(topic: TopicAssignment, version: int = 3) -> bytes:
    """The JSON of a topic; version 1 before Kafka 2.4, 2 before 2.8."""
    parts = topic.partitions.items()
    fields = [
        f'"version":{version}',
        f'"partitions":{_by_index((index, assignment.replicas) for index, assignment in parts)}',
    ]
    if version >= 2:
        adding = _by_index((index, assignment.adding) for index, assignment in parts if assignment.adding)
        removing = _by_index(
            (index, assignment.removing) for index, assignment in parts if assignment.removing
        )
        fields += [f'"adding_replicas":{adding}', f'"removing_replicas":{removing}']
    if version >= 3 and topic.topic_id is not None:
        fields.append(f'"topic_id":"{uuid_text(topic.topic_id)}"')
    return f"{{{','.join(fields)}}}".encode()


def _by_index(parts: Iterable[tuple[int, tuple[int, ...]]]) -> str:
    """Return the JSON of broker ids by partition; fast if many partitions have the same ids."""
    texts: dict[tuple[int, ...], str] = {}
    entries = []
    for index, ids in parts:
        text = texts.get(ids)
        if text is None:
            text = texts[ids] = f"[{','.join(map(str, ids))}]"
        entries.append(f'"{index}":{text}')
    return f"{{{','.join(entries)}}}"


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """A topic's assignment, in versions 1 to 3."""
    fields = read(topic_path(topic), data)
    fields.version(3)
    replicas = fields.object("partitions")
    adding, removing = fields.object("adding_replicas"), fields.object("removing_replicas")
    partitions = {}
    for name in replicas.names():
        if not name.isdecimal() or not name.isascii() or len(name) > 7 or int(name) >= PARTITIONS_MAX:
            raise fields.wrong("partitions", f"replicas by partition, which {name!r} is not")
        partitions[int(name)] = ReplicaAssignment(
            replicas.ids(name),
            adding.ids(name) if name in adding else (),
            removing.ids(name) if name in removing else (),
        )
    text = fields.optional_text("topic_id")
    try:
        topic_id = parse_uuid(text) if text is not None else None
    except ValueError as error:
        raise fields.wrong("topic_id", "an id of a topic") from error
    return TopicAssignment(dict(sorted(partitions.items())), topic_id)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's leader (-1 for none) and ISR. The version of its znode is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False
    """True if the leader was elected uncleanly, and recovers its records (KIP-704)."""


def encode_state(state: PartitionState) -> bytes:
    """The JSON of a partition's state."""
    value: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.is_recovering:
        value["leader_recovery_state"] = 1
    return encode(value)


def decode_state(topic: str, index: int, data: bytes) -> PartitionState:
    """A partition's state."""
    fields = read(state_path(topic, index), data)
    return PartitionState(
        fields.int32("leader"),
        fields.int32("leader_epoch"),
        fields.ids("isr"),
        fields.int32("controller_epoch"),
        fields.int32("leader_recovery_state", 0) == 1,
    )


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """Registration of the controller; `kraft_epoch` is above 0 if it is one of KRaft (KIP-866)."""

    broker_id: int
    timestamp_ms: int = -1
    kraft_epoch: int = -1


def encode_controller(controller: ControllerRegistration) -> bytes:
    """The JSON of the controller."""
    return encode(
        {
            "version": 2,
            "brokerid": controller.broker_id,
            "timestamp": str(controller.timestamp_ms),
            "kraftControllerEpoch": controller.kraft_epoch,
        }
    )


def decode_controller(data: bytes) -> ControllerRegistration:
    """Decode the controller's registration: versions 1 and 2, and the number alone, as Kafka 0.8.0 wrote it."""
    if data.isdigit() and int(data) <= INT32_MAX:
        return ControllerRegistration(int(data))
    fields = read(CONTROLLER, data)
    return ControllerRegistration(
        fields.int32("brokerid"), fields.integer("timestamp", -1), fields.int32("kraftControllerEpoch", -1)
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """The number as text."""
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    """The epoch of the last controller."""
    if not data.isdigit() or int(data) > INT32_MAX:
        raise ZnodeError(CONTROLLER_EPOCH, "a number is expected", data)
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    """The JSON of the cluster's id; its version is a text."""
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id."""
    fields = read(CLUSTER_ID, data)
    cluster_id = fields.text("id")
    if not cluster_id:
        raise fields.wrong("id", "the cluster's id")
    return cluster_id


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids that a broker may allocate: `count` of them from `first` on."""

    broker_id: int
    first: int
    count: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Return the JSON of the last allocated block."""
    return encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.first + block.count - 1),
        }
    )


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    """Return the last allocated block of producer ids."""
    fields = read(PRODUCER_IDS, data)
    first, last = fields.integer("block_start"), fields.integer("block_end")
    if not 0 <= first <= last < 2**63:
        raise fields.wrong("block_end", "from block_start on, and of 63 bits")
    return ProducerIdBlock(fields.int32("broker"), first, last - first + 1)


TopicPartitions = Iterable[tuple[str, int]]


def _partitions_json(partitions: TopicPartitions) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _partitions(fields: Fields) -> list[tuple[str, int]]:
    return [(entry.text("topic"), entry.int32("partition")) for entry in fields.objects("partitions")]


def encode_isr_change(partitions: TopicPartitions) -> bytes:
    """The JSON of a notification that these partitions' states were changed by their leader."""
    return encode({"version": 1, "partitions": _partitions_json(partitions)})


def decode_isr_change(name: str, data: bytes) -> list[tuple[str, int]]:
    """The partitions with states that their leader has changed; `name` is the child of ISR_CHANGES."""
    return _partitions(read(f"{ISR_CHANGES}/{name}", data))


def encode_log_dir_event(broker_id: int) -> bytes:
    """The JSON of a notification that a log dir of a broker has failed."""
    return encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(name: str, data: bytes) -> int:
    """The broker that has lost a log dir; `name` is the child of LOG_DIR_EVENTS."""
    return read(f"{LOG_DIR_EVENTS}/{name}", data).int32("broker")


def decode_preferred_election(data: bytes) -> list[tuple[str, int]]:
    """The partitions that their preferred replicas are to lead."""
    return _partitions(read(PREFERRED_REPLICA_ELECTION, data))


def encode_reassignment(moves: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """Return the JSON of a request to move partitions, in the form before KIP-455."""
    return encode(
        {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": index, "replicas": list(replicas)}
                for (topic, index), replicas in moves.items()
            ],
        }
    )


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas that each partition is to have."""
    fields = read(REASSIGN_PARTITIONS, data)
    return {
        (entry.text("topic"), entry.int32("partition")): entry.ids("replicas")
        for entry in fields.objects("partitions")
    }
