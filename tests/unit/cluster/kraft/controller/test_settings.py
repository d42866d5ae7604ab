"""IncrementalAlterConfigs, AlterConfigs and DescribeConfigs of an active controller."""

import pytest

from barnabas.cluster.kraft.controller import settings
from barnabas.cluster.kraft.controller.features import LEADERSHIP
from barnabas.cluster.kraft.controller.settings import APPEND, DELETE, SET, SUBTRACT, check_topic_configs
from barnabas.cluster.kraft.feature_levels import ELR
from barnabas.cluster.kraft.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.values import Voter
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.support.active_controller import NODE_ID, RECORDS, ActiveController

LOGGER = 8
MIN_IN_SYNC, CORDONED, THROTTLED = (
    "min.insync.replicas", "cordoned.log.dirs", "leader.replication.throttled.replicas",
)  # fmt: skip
ORDERS = RECORDS["Topic"]("orders", bytes(range(16)))
BROKER_1 = RECORDS["RegisterBroker"](broker_id=1, incarnation_id=bytes(16))


def setting(kind, resource, name, value):
    return RECORDS["Config"](kind, resource, name, value)


def new(level=30, *records, config=None):
    return ActiveController(level, config, ORDERS, BROKER_1, *records)


def alter(bench, *resources, validate_only=False, **caller):
    """Ask for (type, name, *(setting, operation, value)); returns the code of each answer, or of its first."""
    kind = IncrementalAlterConfigsRequest
    request = kind(
        validate_only=validate_only,
        resources=[
            kind.AlterConfigsResource(
                number,
                name,
                [kind.AlterableConfig(key, operation, value) for key, operation, value in entries],
            )
            for number, name, *entries in resources
        ],
    )
    return codes(bench.ask(settings.INCREMENTAL_ALTER_CONFIGS, request, **caller), resources)


def replace(bench, *resources, validate_only=False, **caller):
    """Ask by the older API for (type, name, *(setting, value))."""
    kind = AlterConfigsRequest
    request = kind(
        validate_only=validate_only,
        resources=[
            kind.AlterConfigsResource(number, name, [kind.AlterableConfig(*entry) for entry in entries])
            for number, name, *entries in resources
        ],
    )
    return codes(bench.ask(settings.ALTER_CONFIGS, request, **caller), resources)


def codes(response, resources):
    answered = [(answer.resource_type, answer.resource_name) for answer in response.responses]
    assert answered == list(dict.fromkeys((number, name) for number, name, *_ in resources))
    assert all((answer.error_message is None) == (answer.error_code == 0) for answer in response.responses)
    return [ErrorCode(answer.error_code).name for answer in response.responses]


def own(bench, kind=TOPIC, name="orders"):
    return dict(bench.image.settings.get((kind, name), {}))


# --- single settings ------------------------------------------------------------------------------------------------


def test_settings_are_set_and_deleted_one_by_one():
    bench = new()
    assert alter(bench, (TOPIC, "orders", ("retention.ms", SET, "5"), ("flush.ms", SET, "6"))) == ["NONE"]
    assert alter(bench, (TOPIC, "orders", ("retention.ms", DELETE, None), ("segment.ms", SET, "7"))) == [
        "NONE"
    ]
    assert own(bench) == {"flush.ms": "6", "segment.ms": "7"}
    assert bench.records == [
        setting(TOPIC, "orders", "retention.ms", None), setting(TOPIC, "orders", "segment.ms", "7"),
    ]  # fmt: skip


def test_older_api_replaces_all_settings():
    bench = new(30, setting(TOPIC, "orders", "flush.ms", "6"), setting(TOPIC, "orders", "segment.ms", "7"))
    assert replace(bench, (TOPIC, "orders", ("retention.ms", "5"), ("segment.ms", "7"))) == ["NONE"]
    assert own(bench) == {"retention.ms": "5", "segment.ms": "7"}
    assert bench.records == [
        setting(TOPIC, "orders", "retention.ms", "5"), setting(TOPIC, "orders", "flush.ms", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "1:2", "1:2"),
        ("1:2", APPEND, "3:4,1:2", "1:2,3:4"),
        ("1:2,3:4,5:6", SUBTRACT, "3:4,9:9", "1:2,5:6"),
        ("1:2", SUBTRACT, "1:2", ""),
        (None, SUBTRACT, "1:2", ""),
    ],
)
def test_items_are_added_to_lists_and_taken_away(before, operation, value, after):
    bench = new(30, *([setting(TOPIC, "orders", THROTTLED, before)] if before else []))
    assert alter(bench, (TOPIC, "orders", (THROTTLED, operation, value))) == ["NONE"]
    assert own(bench) == {THROTTLED: after}


def test_list_without_a_value_begins_with_its_default():
    bench = new(config={"log.cleanup.policy": "compact"})
    assert alter(bench, (TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))) == ["NONE"]
    assert own(bench) == {"cleanup.policy": "delete,compact"}
    assert alter(bench, (BROKER, "", ("sasl.enabled.mechanisms", APPEND, "PLAIN"))) == ["NONE"]
    assert own(bench, BROKER, "") == {"sasl.enabled.mechanisms": "GSSAPI,PLAIN"}


@pytest.mark.parametrize(
    ("kind", "name", "entry", "code"),
    [
        (TOPIC, "orders", ("retention.ms", APPEND, "1"), "INVALID_CONFIG"),
        (TOPIC, "orders", ("no.such", SUBTRACT, "1"), "INVALID_CONFIG"),
        (CLIENT_METRICS, "m", ("metrics", APPEND, "a"), "INVALID_CONFIG"),
        (GROUP, "g", ("cleanup.policy", APPEND, "compact"), "INVALID_CONFIG"),
        (TOPIC, "orders", ("cleanup.policy", APPEND, ""), "INVALID_CONFIG"),
        (TOPIC, "orders", (THROTTLED, APPEND, None), "INVALID_REQUEST"),
        (TOPIC, "orders", (THROTTLED, 4, "1:2"), "INVALID_REQUEST"),
        (TOPIC, "orders", (THROTTLED, -1, "1:2"), "INVALID_REQUEST"),
        (TOPIC, "orders", ("retention.ms", SET, "x"), "INVALID_CONFIG"),
        (TOPIC, "orders", ("retention.ms", SET, "-2"), "INVALID_CONFIG"),
        (TOPIC, "orders", ("no.such", SET, "1"), "INVALID_CONFIG"),
        (TOPIC, "orders", ("remote.storage.enable", SET, "true"), "INVALID_CONFIG"),
        (TOPIC, "absent", ("retention.ms", SET, "1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "absent", ("retention.ms", SET, "x"), "INVALID_CONFIG"),
        (TOPIC, "", ("retention.ms", SET, "1"), "INVALID_REQUEST"),
        (TOPIC, "a b", ("retention.ms", SET, "1"), "INVALID_TOPIC_EXCEPTION"),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "45000"), "INVALID_REQUEST"),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), "INVALID_CONFIG"),
        (GROUP, "g", ("no.such", SET, "1"), "INVALID_CONFIG"),
        (CLIENT_METRICS, "", ("interval.ms", SET, "1000"), "INVALID_REQUEST"),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "99"), "INVALID_REQUEST"),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "x"), "INVALID_CONFIG"),
        (BROKER, "x", ("log.cleaner.threads", SET, "2"), "INVALID_REQUEST"),
        (BROKER, "-1", ("log.cleaner.threads", SET, "2"), "INVALID_REQUEST"),
        (BROKER, str(2**31), ("log.cleaner.threads", SET, "2"), "INVALID_REQUEST"),
        (BROKER, "9" * 30, ("log.cleaner.threads", SET, "2"), "INVALID_REQUEST"),
        (BROKER, "2", ("log.cleaner.threads", SET, "2"), "BROKER_ID_NOT_REGISTERED"),
        (BROKER, "0", ("log.cleaner.threads", SET, "2"), "BROKER_ID_NOT_REGISTERED"),
        (GROUP, "", ("no.such", SET, "1"), "INVALID_REQUEST"),
        (CLIENT_METRICS, "", ("interval.ms", SET, "x"), "INVALID_REQUEST"),
        (LOGGER, "100", ("root", SET, "INFO"), "INVALID_REQUEST"),
        (0, "x", ("a", SET, "1"), "UNSUPPORTED_VERSION"),
        (3, "x", ("a", SET, "1"), "UNSUPPORTED_VERSION"),
    ],
)
def test_alteration_that_cannot_be_is_refused_alone(kind, name, entry, code):
    bench = new()
    other = (GROUP, "other", ("share.session.timeout.ms", SET, "50000"))
    assert alter(bench, (kind, name, ("retention.bytes", DELETE, None), entry), other) == [code, "NONE"]
    assert own(bench, GROUP, "other") == {"share.session.timeout.ms": "50000"}
    assert len(bench.records) == 1


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "m", "interval.ms", "1000"),
        (BROKER, "", "log.cleaner.threads", "not even a number"),
        (BROKER, "1", "a.plugin's", "1"),
        (BROKER, "00000000001", "a.plugin's", "1"),
        (BROKER, "", "ssl.keystore.key", "x" * 32_767),
    ],
)
def test_resources_of_all_types_are_altered(kind, name, key, value):
    bench = new()
    assert alter(bench, (kind, name, (key, SET, value))) == ["NONE"]
    assert own(bench, kind, name) == {key: value}


@pytest.mark.parametrize("character", ["x", "ä"])
def test_value_grows_no_longer_than_a_string_may_be(character):
    bench = new(30, setting(BROKER, "", "sasl.enabled.mechanisms", "A"))
    size = (32_767 - 2) // len(character.encode())
    entry = ("sasl.enabled.mechanisms", APPEND, character * size)
    assert alter(bench, (BROKER, "", entry)) == ["NONE"]
    assert alter(bench, (BROKER, "", ("sasl.enabled.mechanisms", APPEND, "B"))) == ["INVALID_CONFIG"]


@pytest.mark.parametrize("node_id", [1, 7, 8, NODE_ID])
def test_settings_of_every_node_of_the_cluster_can_be_altered(node_id):
    bench = new(30, RECORDS["RegisterController"](controller_id=7, incarnation_id=bytes(16)))
    bench.state.parts[LEADERSHIP] = lambda: Leadership(voters=(Voter(8),))
    assert alter(bench, (BROKER, str(node_id), ("log.cleaner.threads", SET, "2"))) == ["NONE"]


def test_all_alterations_of_a_resource_happen_or_none():
    bench = new()
    assert alter(bench, (TOPIC, "orders", ("flush.ms", SET, "6"), ("retention.ms", SET, "x"))) == [
        "INVALID_CONFIG"
    ]
    assert bench.records == []


def test_last_of_two_alterations_of_a_setting_counts():
    bench = new()
    assert alter(bench, (TOPIC, "orders", ("flush.ms", SET, "6"), ("flush.ms", SET, "7"))) == ["NONE"]
    assert bench.records == [setting(TOPIC, "orders", "flush.ms", "7")]


def test_resource_named_twice_is_refused_and_answered_once():
    for ask in (alter, replace):
        bench = new()
        twice = (TOPIC, "orders")
        assert ask(bench, twice, twice, (TOPIC, "orders"), (GROUP, "g")) == ["INVALID_REQUEST", "NONE"]
        assert bench.records == []


def test_unchanged_value_is_no_record_but_for_brokers():
    bench = new(
        30, setting(TOPIC, "orders", "flush.ms", "6"), setting(BROKER, "1", "ssl.keystore.location", "/k")
    )
    same = (TOPIC, "orders", ("flush.ms", SET, "6"), ("segment.ms", DELETE, None))
    assert alter(bench, same) == ["NONE"]
    assert bench.records == []
    assert alter(bench, (BROKER, "1", ("ssl.keystore.location", SET, "/k"), ("a", DELETE, None))) == ["NONE"]
    assert bench.records == [
        setting(BROKER, "1", "ssl.keystore.location", "/k"),
        setting(BROKER, "1", "a", None),
    ]
    assert replace(bench, (BROKER, "1", ("ssl.keystore.location", "/k"))) == ["NONE"]
    assert bench.records == [setting(BROKER, "1", "ssl.keystore.location", "/k")]


@pytest.mark.parametrize("ask", [alter, replace])
def test_value_of_none_removes_a_setting(ask):
    bench = new(30, setting(TOPIC, "orders", "flush.ms", "6"))
    entry = ("flush.ms", SET, None) if ask is alter else ("flush.ms", None)
    assert ask(bench, (TOPIC, "orders", entry)) == ["NONE"]
    assert own(bench) == {}


def test_kept_settings_are_checked_together_with_new_ones():
    bench = new(30, setting(TOPIC, "orders", "max.compaction.lag.ms", "10"))
    assert alter(bench, (TOPIC, "orders", ("min.compaction.lag.ms", SET, "20"))) == ["INVALID_CONFIG"]
    assert replace(bench, (TOPIC, "orders", ("min.compaction.lag.ms", "20"))) == ["NONE"]


@pytest.mark.parametrize("ask", [alter, replace])
def test_validation_only_answers_without_records(ask):
    bench = new()
    entry = ("flush.ms", SET, "6") if ask is alter else ("flush.ms", "6")
    assert ask(bench, (TOPIC, "orders", entry), validate_only=True) == ["NONE"]
    assert ask(bench, (TOPIC, "absent", entry), validate_only=True) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert bench.records == []


def test_too_many_settings_at_once_are_refused_as_a_whole():
    bench = new()
    entries = [(f"plugin.{number}", SET, "1") for number in range(10_000)]
    assert alter(bench, (BROKER, "", *entries)) == ["NONE"]
    with pytest.raises(RequestError) as raised:
        alter(bench, (BROKER, "", *entries), (BROKER, "1", ("a", SET, "1")))
    assert raised.value.code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("kind", "name", "on", "code"),
    [
        (BROKER, "1", (ResourceType.CLUSTER, CLUSTER_NAME), "CLUSTER_AUTHORIZATION_FAILED"),
        (CLIENT_METRICS, "m", (ResourceType.CLUSTER, CLUSTER_NAME), "CLUSTER_AUTHORIZATION_FAILED"),
        (TOPIC, "orders", (ResourceType.TOPIC, "orders"), "TOPIC_AUTHORIZATION_FAILED"),
        (TOPIC, "absent", (ResourceType.TOPIC, "absent"), "TOPIC_AUTHORIZATION_FAILED"),
        (GROUP, "g", (ResourceType.GROUP, "g"), "GROUP_AUTHORIZATION_FAILED"),
    ],
)
def test_resources_need_permissions_of_their_own(kind, name, on, code):
    asked = []

    def refuse(operation, *resource):
        asked.append((operation, resource))
        return False

    bench = new()
    assert alter(bench, (kind, name, ("a", SET, "1")), may=refuse) == [code]
    assert replace(bench, (kind, name, ("a", "1")), may=refuse) == [code]
    assert [result.error_code for result in describe(bench, (kind, name), may=refuse)] == [ErrorCode[code]]
    assert asked == [
        (Operation.ALTER_CONFIGS, on), (Operation.ALTER_CONFIGS, on), (Operation.DESCRIBE_CONFIGS, on),
    ]  # fmt: skip
    assert bench.records == []


# --- what controllers look after ------------------------------------------------------------------------------------


def elr(level=30, *records):
    return new(level, RECORDS["FeatureLevel"](ELR, 1), setting(BROKER, "", MIN_IN_SYNC, "1"), *records)


@pytest.mark.parametrize(("kind", "name", "cleared"), [(TOPIC, "orders", "orders"), (BROKER, "", "")])
def test_other_min_insync_replicas_clears_the_elr(kind, name, cleared):
    for bench, records in ((elr(), [RECORDS["ClearElr"](cleared)]), (new(), [])):
        assert alter(bench, (kind, name, (MIN_IN_SYNC, SET, "2"), ("flush.ms", SET, "1"))) == ["NONE"]
        assert bench.records[2:] == records
        assert replace(bench, (kind, name, (MIN_IN_SYNC, "3"), ("flush.ms", "2"))) == ["NONE"]
        assert bench.records[2:] == records


def test_min_insync_replicas_is_one_for_all_with_elr():
    bench = elr()
    for operation in (SET, DELETE):
        assert alter(bench, (BROKER, "1", (MIN_IN_SYNC, operation, "2"))) == ["INVALID_CONFIG"]
    assert alter(bench, (BROKER, "", (MIN_IN_SYNC, DELETE, None))) == ["INVALID_CONFIG"]
    assert replace(bench, (BROKER, "", ("log.cleaner.threads", "2"))) == ["INVALID_CONFIG"]
    assert bench.records == []
    bench = new(30, setting(BROKER, "", MIN_IN_SYNC, "1"))
    assert alter(bench, (BROKER, "1", (MIN_IN_SYNC, SET, "2")), (BROKER, "", (MIN_IN_SYNC, DELETE, None))) == [
        "NONE", "NONE",
    ]  # fmt: skip


def test_topic_may_lose_its_min_insync_replicas_with_elr():
    bench = elr(30, setting(TOPIC, "orders", MIN_IN_SYNC, "2"))
    assert alter(bench, (TOPIC, "orders", (MIN_IN_SYNC, DELETE, None))) == ["NONE"]
    assert bench.records[-1] == RECORDS["ClearElr"]("orders")


@pytest.mark.parametrize(
    ("before", "value", "code"),
    [
        ("/a,/b", "/b", "NONE"),
        ("/a, /b", "/b,/a", "NONE"),
        ("/a", "", "NONE"),
        ("/a", None, "NONE"),
        ("/a", "/a,/b", "INVALID_CONFIG"),
        (None, "/a", "INVALID_CONFIG"),
    ],
)
def test_only_a_broker_may_cordon_more_log_dirs(before, value, code):
    records = [setting(BROKER, "1", CORDONED, before)] if before else []
    assert alter(new(30, *records), (BROKER, "1", (CORDONED, SET, value))) == [code]
    assert alter(new(30, *records), (BROKER, "1", (CORDONED, SET, value)), is_forwarded=True) == ["NONE"]
    assert alter(new(29, *records), (BROKER, "1", (CORDONED, SET, value)), is_forwarded=True) == [
        "INVALID_CONFIG"
    ]


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({}, None),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, None),
        ({"retention.ms": None}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"no.such": "1"}, ErrorCode.INVALID_CONFIG),
        ({THROTTLED: ",".join(["1:2"] * 9_000)}, ErrorCode.INVALID_CONFIG),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_settings_of_new_topics_are_checked(configs, code):
    error = check_topic_configs(new().state, configs)
    assert (error and error.code) == code


# --- DescribeConfigs ------------------------------------------------------------------------------------------------


def describe(bench, *resources, synonyms=False, documentation=False, **caller):
    kind = DescribeConfigsRequest
    request = kind(
        [kind.DescribeConfigsResource(number, name, list(keys) or None) for number, name, *keys in resources],
        synonyms,
        documentation,
    )
    return bench.ask(settings.DESCRIBE_CONFIGS, request, **caller).results


def test_topic_is_described_with_what_its_values_come_from():
    bench = new(
        30,
        setting(TOPIC, "orders", "flush.ms", "6"),
        setting(BROKER, "", "log.cleaner.min.compaction.lag.ms", "7"),
    )
    (result,) = describe(bench, (TOPIC, "orders", "flush.ms", "min.compaction.lag.ms", "segment.bytes"))
    assert {entry.name: (entry.value, entry.config_source) for entry in result.configs} == {
        "flush.ms": ("6", 1), "min.compaction.lag.ms": ("7", 3), "segment.bytes": ("1073741824", 5),
    }  # fmt: skip
    assert all(entry.synonyms == [] and entry.documentation is None for entry in result.configs)
    (result,) = describe(bench, (TOPIC, "orders"), synonyms=True, documentation=True)
    assert (result.error_code, result.error_message) == (0, "")
    assert len(result.configs) > 30
    entry = next(entry for entry in result.configs if entry.name == "flush.ms")
    assert (entry.synonyms[0].value, bool(entry.documentation)) == ("6", True)


def test_brokers_groups_and_metrics_are_described():
    bench = new(
        30, setting(BROKER, "", "log.cleaner.threads", "2"), setting(GROUP, "g", "share.session.timeout.ms", "50000"),
        setting(CLIENT_METRICS, "m", "interval.ms", "1000"), setting(BROKER, str(NODE_ID), "log.cleaner.threads", "3"),
    )  # fmt: skip
    of_all, of_this, group, metrics = describe(
        bench, (BROKER, ""), (BROKER, str(NODE_ID), "log.cleaner.threads"), (GROUP, "g", "share.session.timeout.ms"),
        (CLIENT_METRICS, "m", "interval.ms"),
    )  # fmt: skip
    shown = [
        [(entry.value, entry.config_source) for entry in result.configs]
        for result in (of_all, of_this, group, metrics)
    ]
    assert shown == [[("2", 3)], [("3", 2)], [("50000", 8)], [("1000", 7)]]


def test_node_is_described_despite_a_value_that_is_none():
    bench = new(30, setting(BROKER, "", "log.cleaner.threads", "many"))
    (result,) = describe(bench, (BROKER, str(NODE_ID), "log.cleaner.threads"))
    assert [entry.value for entry in result.configs] == ["1"]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (BROKER, "1", "INVALID_REQUEST"),
        (BROKER, "x", "INVALID_REQUEST"),
        (TOPIC, "absent", "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPIC, "a b", "INVALID_TOPIC_EXCEPTION"),
        (TOPIC, "", "INVALID_TOPIC_EXCEPTION"),
        (GROUP, "", "INVALID_REQUEST"),
        (CLIENT_METRICS, "", "INVALID_REQUEST"),
        (LOGGER, str(NODE_ID), "INVALID_REQUEST"),
        (3, "x", "INVALID_REQUEST"),
    ],
)
def test_resource_that_is_not_there_is_not_described(kind, name, code):
    (refused, described) = describe(new(), (kind, name), (GROUP, "g"))
    assert (refused.error_code, refused.configs, refused.resource_name) == (ErrorCode[code], [], name)
    assert described.error_code == 0
