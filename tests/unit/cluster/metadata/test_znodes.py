"""Znodes as Kafka writes them, of all versions since 0.8, and what is no znode of anybody's."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.znodes import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from barnabas.security.tokens import Token
from tests.support.effort import examples

TOPIC_ID = bytes.fromhex("7ed94cf1d8b94f8d9fa64d6e2b3c5a01")
TOPIC_ID_TEXT = "ftlM8di5T42fpk1uKzxaAQ"

BROKER_5 = (
    b'{"features":{"group.version":{"min_version":0,"max_version":1}},'
    b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL","PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["CLIENT://k1.example:9093","PLAINTEXT://[::1]:9092"],"rack":"r1","jmx_port":-1,'
    b'"port":9092,"host":"::1","version":5,"timestamp":"1718000000000"}'
)
BROKER = BrokerRegistration(
    (Endpoint("CLIENT", "k1.example", 9093, "SASL_SSL"), Endpoint("PLAINTEXT", "::1", 9092)),
    "r1",
    {"group.version": (0, 1)},
    1718000000000,
)


def test_a_broker_of_today():
    assert znodes.decode_broker(1, BROKER_5) == BROKER
    assert json.loads(znodes.encode_broker(BROKER)) == json.loads(BROKER_5)


def test_brokers_of_older_releases():
    v1 = b'{"jmx_port":-1,"timestamp":"1400000000000","host":"h","version":1,"port":9092}'
    assert znodes.decode_broker(0, v1).endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    v2 = (
        b'{"jmx_port":9999,"timestamp":"2233345666","endpoints":["PLAINTEXT://h:9092","SSL://h:9093"],'
        b'"host":"h","version":2,"port":9092}'
    )
    broker = znodes.decode_broker(0, v2)
    assert broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "h", 9093, "SSL"))
    assert (broker.jmx_port, broker.rack) == (9999, None)
    v3 = v2.replace(b'"version":2', b'"version":3,"rack":"dc1"')
    assert znodes.decode_broker(0, v3).rack == "dc1"
    v4 = (
        b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
        b'"jmx_port":-1,"host":"h","timestamp":"1530000000000","port":9092,"version":4}'
    )
    assert znodes.decode_broker(0, v4).endpoints == (Endpoint("PLAINTEXT", "h", 9092),)


def test_old_brokers_get_no_more_than_they_know():
    assert set(json.loads(znodes.encode_broker(BROKER, 2))) == {
        "version", "host", "port", "jmx_port", "timestamp", "endpoints",
    }  # fmt: skip
    assert "features" not in json.loads(znodes.encode_broker(BROKER, 4))
    only_tls = BrokerRegistration((Endpoint("SSL", "h", 1, "SSL"),))
    assert json.loads(znodes.encode_broker(only_tls))["port"] == -1
    assert json.loads(znodes.encode_broker(only_tls))["host"] is None


def test_topics_of_all_versions():
    v1 = b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}'
    assignment = znodes.decode_topic("t", v1)
    assert assignment == TopicAssignment({0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))})
    assert list(assignment.partitions) == [0, 1]
    v2 = b'{"version":2,"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    moving = TopicAssignment({0: ReplicaAssignment((1, 2, 3), (3,), (1,))})
    assert znodes.decode_topic("t", v2) == moving
    assert json.loads(znodes.encode_topic(moving, 2)) == json.loads(v2)
    v3 = (
        b'{"partitions":{"0":[1]},"topic_id":"' + TOPIC_ID_TEXT.encode() + b'",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}'
    )
    today = TopicAssignment({0: ReplicaAssignment((1,))}, TOPIC_ID)
    assert znodes.decode_topic("t", v3) == today
    assert json.loads(znodes.encode_topic(today)) == json.loads(v3)
    assert json.loads(znodes.encode_topic(today, 1)) == {"version": 1, "partitions": {"0": [1]}}


def test_states():
    data = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    state = PartitionState(1, 3, (1, 2), 7)
    assert znodes.decode_state("t", 0, data) == state
    assert json.loads(znodes.encode_state(state)) == json.loads(data)
    recovering = PartitionState(1, 3, (1,), 7, is_recovering=True)
    assert json.loads(znodes.encode_state(recovering))["leader_recovery_state"] == 1
    assert znodes.decode_state("t", 0, znodes.encode_state(recovering)) == recovering
    assert znodes.decode_state("t", 0, data.replace(b'"leader":1', b'"leader":-1')).leader == -1


def test_controllers():
    v1 = b'{"version":1,"brokerid":2,"timestamp":"1718000000000"}'
    assert znodes.decode_controller(v1) == ControllerRegistration(2, 1718000000000)
    v2 = b'{"version":2,"brokerid":2,"timestamp":"1718000000000","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(v2) == ControllerRegistration(2, 1718000000000)
    assert json.loads(znodes.encode_controller(ControllerRegistration(2, 1718000000000))) == json.loads(v2)
    assert znodes.decode_controller(b"2").broker_id == 2
    assert znodes.encode_controller_epoch(7) == b"7"
    assert znodes.decode_controller_epoch(b"7") == 7


def test_the_cluster_and_its_producer_ids():
    assert (
        znodes.decode_cluster_id(b'{"version":"1","id":"vPeOCWypqUOSepEvx0cbog"}') == "vPeOCWypqUOSepEvx0cbog"
    )
    assert json.loads(znodes.encode_cluster_id("c")) == {"version": "1", "id": "c"}
    block = b'{"version":1,"broker":0,"block_start":"1000","block_end":"1999"}'
    assert znodes.decode_producer_ids(block) == ProducerIdBlock(0, 1000, 1000)
    assert json.loads(znodes.encode_producer_ids(ProducerIdBlock(0, 1000, 1000))) == json.loads(block)


def test_notifications_and_orders():
    change = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'
    partitions = [("t", 0), ("u", 3)]
    assert znodes.decode_isr_change("isr_change_0000000001", change) == partitions
    assert json.loads(znodes.encode_isr_change(partitions)) == json.loads(change)
    assert znodes.decode_preferred_election(change) == partitions
    event = b'{"version":1,"broker":2,"event":1}'
    assert znodes.decode_log_dir_event("log_dir_event_0000000000", event) == 2
    assert json.loads(znodes.encode_log_dir_event(2)) == json.loads(event)
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    assert znodes.decode_reassignment(moves) == {("t", 0): (1, 2)}
    assert json.loads(znodes.encode_reassignment({("t", 0): [1, 2]})) == json.loads(moves)


def test_settings_and_their_changes():
    data = b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"1000"}}'
    settings = {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert resources.decode_config("/config/topics/t", data) == settings
    assert json.loads(resources.encode_config(settings)) == json.loads(data)
    assert resources.decode_config("/config/topics/t", b"") == {}
    decode = resources.decode_config_change
    assert decode("c", b'{"version":2,"entity_path":"users/a%40b/clients/c"}') == ("users", "a%40b/clients/c")
    assert decode("c", b'{"version":1,"entity_type":"topics","entity_name":"t"}') == ("topics", "t")
    assert decode("c", b'"t"') == ("topics", "t")
    assert resources.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    with pytest.raises(ZnodeError, match="/config/changes/config_change_0000000007"):
        decode("config_change_0000000007", b'{"version":3,"entity_path":"topics/t"}')
    with pytest.raises(ZnodeError, match="no entity"):
        decode("c", b'{"version":2,"entity_path":"topics"}')


def test_secrets_are_not_shown_and_not_read_by_others():
    shown = resources.masked({"SCRAM-SHA-256": "salt=..,stored_key=..", "producer_byte_rate": "1"})
    assert shown == {"SCRAM-SHA-256": "[hidden]", "producer_byte_rate": "1"}
    assert resources.masked({"listener.name.x.ssl.keystore.password": "p"}).popitem()[1] == "[hidden]"
    assert resources.is_sensitive("/config/users/alice")
    assert resources.is_sensitive("/config/brokers/<default>")
    assert not resources.is_sensitive("/config/topics/t")
    assert resources.is_open("/consumers/g/ids/c")
    assert not resources.is_open("/consumers-x")


def test_users_are_written_as_kafka_writes_them():
    assert resources.sanitized("CN=a b,O=x*~") == "CN%3Da%20b%2CO%3Dx%2A%7E"
    assert resources.desanitized("CN%3Da%20b%2CO%3Dx%2A") == "CN=a b,O=x*"
    assert resources.sanitized("<default>") == "<default>"


def test_acls():
    data = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
    entry = resources.AclEntry("User:alice", "*", "Read", "Allow")
    assert resources.decode_acls("/kafka-acl/Topic/t", data) == {entry}
    assert json.loads(resources.encode_acls([entry])) == json.loads(data)
    assert resources.acl_path("LITERAL", "Topic", "t") == "/kafka-acl/Topic/t"
    assert resources.acl_path("PREFIXED", "Group", "g") == "/kafka-acl-extended/prefixed/Group/g"
    literal = resources.encode_acl_change("LITERAL", "Topic", "a:b")
    assert literal == b"TOPIC:a:b"
    assert resources.decode_acl_change("/kafka-acl-changes/acl_changes_1", literal) == (
        "LITERAL",
        "TOPIC",
        "a:b",
    )
    extended = b'{"version":1,"resourceType":"TOPIC","name":"p","patternType":"PREFIXED"}'
    assert json.loads(resources.encode_acl_change("PREFIXED", "TOPIC", "p")) == json.loads(extended)
    assert resources.decode_acl_change("/kafka-acl-extended-changes/acl_changes_1", extended) == (
        "PREFIXED", "TOPIC", "p",
    )  # fmt: skip
    with pytest.raises(ZnodeError):
        resources.decode_acl_change("/kafka-acl-extended-changes/acl_changes_1", extended.replace(b"1", b"2"))


def test_features_of_both_versions():
    v1 = (
        b'{"version":1,"status":1,"features":{"group.version":{"min_version_level":1,"max_version_level":2}}}'
    )
    assert resources.decode_features(v1) == resources.FinalizedFeatures(True, {"group.version": 2})
    v2 = b'{"version":2,"status":0,"features":{}}'
    assert resources.decode_features(v2) == resources.FinalizedFeatures(False, {})
    assert json.loads(resources.encode_features(resources.FinalizedFeatures(False, {}))) == json.loads(v2)


def test_delegation_tokens_of_all_versions():
    v2 = (
        b'{"version":2,"owner":"User%3Aa","renewers":["User%3Ab"],"issueTimestamp":1,"maxTimestamp":3,'
        b'"expiryTimestamp":2,"tokenId":"id"}'
    )
    token = Token("id", "User:a", "User:a", ("User:b",), 1, 2, 3)
    assert resources.decode_token("id", v2) == token
    assert json.loads(resources.encode_token(token))["tokenRequester"] == "User%3Aa"
    assert resources.decode_token("id", resources.encode_token(token)) == token


def test_offsets_of_old_consumers():
    assert resources.offset_path("g", "t", 0) == "/consumers/g/offsets/t/0"
    assert resources.decode_offset("p", resources.encode_offset(42)) == 42


DECODERS = {
    "broker": lambda data: znodes.decode_broker(1, data),
    "topic": lambda data: znodes.decode_topic("t", data),
    "state": lambda data: znodes.decode_state("t", 0, data),
    "controller": znodes.decode_controller,
    "controller epoch": znodes.decode_controller_epoch,
    "cluster id": znodes.decode_cluster_id,
    "producer ids": znodes.decode_producer_ids,
    "isr change": lambda data: znodes.decode_isr_change("isr_change_1", data),
    "log dir event": lambda data: znodes.decode_log_dir_event("log_dir_event_1", data),
    "reassignment": znodes.decode_reassignment,
    "election": znodes.decode_preferred_election,
    "config": lambda data: resources.decode_config("/config/topics/t", data),
    "config change": lambda data: resources.decode_config_change("config_change_1", data),
    "acls": lambda data: resources.decode_acls("/kafka-acl/Topic/t", data),
    "acl change": lambda data: resources.decode_acl_change("/kafka-acl-extended-changes/1", data),
    "features": resources.decode_features,
    "token": lambda data: resources.decode_token("x", data),
    "offset": lambda data: resources.decode_offset("/consumers/g/offsets/t/0", data),
}
SAMPLES = [
    BROKER_5,
    b'{"version":3,"partitions":{"0":[1]},"topic_id":"x","adding_replicas":[]}',
    b'{"leader":"x","leader_epoch":null,"isr":{},"controller_epoch":1}',
    b'{"version":1,"config":{"a":1}}',
    b'{"version":1,"partitions":[1,{"topic":1}],"acls":[[]],"status":true,"features":{"f":1}}',
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted({name for sample in SAMPLES for name in json.loads(sample)})
objects = st.dictionaries(st.sampled_from(FIELDS), json_values).map(lambda value: json.dumps(value).encode())


def garbled(sample, at, byte):
    return sample[:at] + bytes([byte]) + sample[at + 1 :]


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=examples(15))
@given(
    data=st.binary(max_size=40)
    | objects
    | st.builds(garbled, st.sampled_from(SAMPLES), st.integers(0, 60), st.integers(0, 255))
)
def test_whatever_a_znode_holds_is_read_or_refused_with_its_name(name, data):
    refused = None
    try:
        DECODERS[name](data)
    except ZnodeError as error:
        refused = error
    assert refused is None or str(refused).startswith(f"znode {refused.path}: ")


ids = st.integers(0, 2**31 - 1)
id_lists = st.lists(ids, max_size=4).map(tuple)
assignments = st.builds(ReplicaAssignment, id_lists, id_lists, id_lists)


@given(
    st.builds(
        TopicAssignment, st.dictionaries(st.integers(0, 99_999), assignments), st.none() | st.just(TOPIC_ID)
    )
)
def test_topics_come_back_as_they_were_written(topic):
    assert znodes.decode_topic("t", znodes.encode_topic(topic)) == topic


@given(st.builds(PartitionState, st.integers(-1, 9), ids, id_lists, ids, st.booleans()))
def test_states_come_back_as_they_were_written(state):
    assert znodes.decode_state("t", 0, znodes.encode_state(state)) == state


@given(st.dictionaries(st.text(), st.text()))
def test_settings_come_back_as_they_were_written(values):
    assert resources.decode_config("/config/users/u", resources.encode_config(values)) == values


@given(st.text(min_size=1))
def test_names_of_users_come_back_as_they_were_written(name):
    assert resources.desanitized(resources.sanitized(name)) == name
    assert "/" not in resources.sanitized(name)
