"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources, as clients see them."""

import logging

import pytest

from barnabas.cluster.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.config import tables
from barnabas.config import topic as topic_settings
from barnabas.serving.log_limit import LINES_MAX
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.list_config_resources import ListConfigResourcesRequest
from tests.support.broker import broker_to_ask

SET, DELETE, APPEND, SUBTRACT = range(4)


async def make_topic(ask, name, **settings):
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for key, value in settings.items():
        config = CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        topic.configs.append(config)
    answer = await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
    assert answer.topics[0].error_code == 0


async def describe(ask, kind, name, keys=None, version=4, documentation=False):
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = documentation
    (result,) = (await ask(request, version)).results
    return result


async def settings_of(ask, kind, name):
    result = await describe(ask, kind, name)
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


async def change(ask, kind, name, *changes, validate_only=False):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name)
    for key, operation, value in changes:
        resource.configs.append(
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return (await ask(request, 1)).responses[0].error_code


async def replace(ask, kind, name, settings, *, version=2, validate_only=False):
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name)
    resource.configs = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in settings]
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return (await ask(request, version)).responses[0].error_code


def chain(entry):
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


async def test_topic_value_comes_with_its_synonyms(tmp_path):
    async with broker_to_ask(tmp_path, {"log.retention.ms": "900"}) as ask:
        await make_topic(ask, "t", retention_ms="007")
        assert await change(ask, BROKER, "", ("log.retention.ms", SET, "500")) == 0
        assert await change(ask, BROKER, "1", ("log.retention.ms", SET, "600")) == 0
        retention = (await settings_of(ask, TOPIC, "t"))["retention.ms"]
        assert (retention.value, retention.config_source, retention.config_type) == ("7", 1, 5)
        assert chain(retention) == [
            ("retention.ms", "7", 1), ("log.retention.ms", "600", 2), ("log.retention.ms", "500", 3),
            ("log.retention.ms", "900", 4), ("log.retention.hours", "168", 5),
        ]  # fmt: skip


@pytest.mark.parametrize(("settings", "value"), [({}, "1"), ({"min.insync.replicas": "2"}, "2")])
async def test_in_sync_replicas_are_a_setting_of_all_brokers(tmp_path, settings, value):
    """As Apache Kafka keeps it since it has eligible leader replicas; what the file says is what it begins with."""
    name = "min.insync.replicas"
    static = [(name, value, 4)] if settings else []
    expected = [(name, value, 3), *static, (name, "1", 5)]
    async with broker_to_ask(tmp_path, settings) as ask:
        await make_topic(ask, "t")
        for kind, resource in ((BROKER, "1"), (TOPIC, "t")):
            entry = (await settings_of(ask, kind, resource))[name]
            assert (entry.value, entry.config_source, chain(entry)) == (value, 3, expected)
        assert {key: entry.value for key, entry in (await settings_of(ask, BROKER, "")).items()} == {
            name: value
        }
        assert await change(ask, BROKER, "1", (name, SET, "3")) == ErrorCode.INVALID_CONFIG
        assert await change(ask, BROKER, "1", (name, DELETE, None)) == 0
        assert await change(ask, BROKER, "", (name, DELETE, None)) == ErrorCode.INVALID_CONFIG
        assert await replace(ask, BROKER, "", [("log.retention.ms", "5")]) == ErrorCode.INVALID_CONFIG
        assert await change(ask, BROKER, "", ("log.retention.ms", SET, "5")) == 0
        assert await change(ask, BROKER, "", (name, SET, "3")) == 0
        entry = (await settings_of(ask, TOPIC, "t"))[name]
        assert (entry.value, chain(entry)[0]) == ("3", (name, "3", 3))


async def test_a_default_in_another_unit_counts_as_a_default(tmp_path):
    async with broker_to_ask(tmp_path, {"log.retention.hours": "2"}) as ask:
        await make_topic(ask, "t")
        retention = (await settings_of(ask, TOPIC, "t"))["retention.ms"]
        assert (retention.value, retention.config_source, chain(retention)) == ("7200000", 5, [])


async def test_a_brokers_settings_are_all_there(tmp_path):
    settings = {"ssl.keystore.password": "secret", "zookeeper.session.timeout.ms": "9", "a.plugins.own": "x"}
    async with broker_to_ask(tmp_path, settings) as ask:
        entries = await settings_of(ask, BROKER, "1")
        assert set(tables.listed()) <= set(entries)
        password = entries["ssl.keystore.password"]
        assert (password.value, password.is_sensitive, password.config_type) == (None, True, 9)
        assert chain(password) == [("ssl.keystore.password", None, 4)]
        for name in ("zookeeper.session.timeout.ms", "a.plugins.own"):
            entry = entries[name]
            assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_type) == (
                None, True, True, 0,
            )  # fmt: skip
        assert entries["node.id"].read_only
        assert (entries["node.id"].value, entries["node.id"].config_source) == ("1", 4)
        assert not entries["message.max.bytes"].read_only


@pytest.mark.parametrize("version", range(5))
async def test_every_version_tells_what_it_can(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t", retention_ms="9")
        result = await describe(ask, TOPIC, "t", ["retention.ms", "flush.ms", "no.such"], version, True)
        entries = {entry.name: entry for entry in result.configs}
        assert entries.keys() == {"retention.ms", "flush.ms"}
        assert entries["retention.ms"].value == "9"
        if version == 0:
            assert [entries[name].is_default for name in ("retention.ms", "flush.ms")] == [False, True]
        else:
            assert [entries[name].config_source for name in ("retention.ms", "flush.ms")] == [1, 5]
        if version >= 3:
            assert entries["flush.ms"].documentation.startswith("Milliseconds after which")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not legal", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_are_not_there(tmp_path, kind, name, code):
    async with broker_to_ask(tmp_path) as ask:
        assert (await describe(ask, kind, name)).error_code == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "5")], 0),
        ([("retention.ms", SET, "5"), ("flush.ms", DELETE, None)], 0),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("no.such", SET, "2")], ErrorCode.INVALID_CONFIG),
        ([("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, "1000")], ErrorCode.INVALID_CONFIG),
        ([("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
    ],
)  # fmt: skip
async def test_changes_of_a_topic_happen_as_a_whole_or_not_at_all(tmp_path, changes, code):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t", retention_ms="9")
        assert await change(ask, TOPIC, "t", *changes, validate_only=True) == code
        assert (await settings_of(ask, TOPIC, "t"))["retention.ms"].value == "9"
        assert await change(ask, TOPIC, "t", *changes) == code
        assert (await settings_of(ask, TOPIC, "t"))["retention.ms"].value == ("9" if code else "5")


async def test_lists_grow_and_shrink(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t")
        for operation, value, expected in [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
        ]:
            assert await change(ask, TOPIC, "t", ("cleanup.policy", operation, value)) == 0
            assert (await settings_of(ask, TOPIC, "t"))["cleanup.policy"].value == expected


async def test_a_log_obeys_at_once(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t")
        log = ask.services.replicas.leader("t", 0).log
        await change(
            ask, TOPIC, "t", ("internal.segment.bytes", SET, "2000"), ("max.message.bytes", SET, "77")
        )
        assert (log.config.segment_bytes, log.config.max_message_bytes) == (2000, 77)
        await change(ask, TOPIC, "t", ("max.message.bytes", DELETE, None))
        await change(
            ask, BROKER, "", ("message.max.bytes", SET, "88"), ("producer.id.expiration.ms", SET, "99")
        )
        assert (log.config.max_message_bytes, log.producers.expiration_ms) == (88, 99)


async def test_replacing_forgets_what_is_not_named(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t", retention_ms="9")
        assert await replace(ask, TOPIC, "t", [("flush.ms", "1")], validate_only=True) == 0
        assert (await settings_of(ask, TOPIC, "t"))["retention.ms"].value == "9"
        assert await replace(ask, TOPIC, "t", [("flush.ms", "1")]) == 0
        entries = await settings_of(ask, TOPIC, "t")
        assert (entries["flush.ms"].value, entries["retention.ms"].config_source) == ("1", 5)
        assert await replace(ask, TOPIC, "t", [("flush.ms", "x")]) == ErrorCode.INVALID_CONFIG
        assert await replace(ask, TOPIC, "t", [("flush.ms", None)]) == ErrorCode.INVALID_REQUEST
        assert await replace(ask, BROKER_LOGGER, "1", [("root", "INFO")]) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "change_of_one", "code"),
    [
        ("1", ("message.max.bytes", SET, "5"), 0),
        ("", ("message.max.bytes", SET, "5"), 0),
        ("1", ("message.max.bytes", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("node.id", SET, "5"), ErrorCode.INVALID_REQUEST),
        ("1", ("ssl.keystore.password", SET, "x"), 0),
        ("1", ("listener.name.plaintext.sasl.jaas.config", SET, "x"), 0),
        ("1", ("ssl.keystore.type", SET, "PEM"), 0),
        ("1", ("ssl.client.auth", SET, "none"), 0),
        ("1", ("max.connection.creation.rate", SET, "5"), 0),
        ("1", ("max.connection.creation.rate", SET, "0"), ErrorCode.INVALID_REQUEST),
        ("", ("ssl.keystore.password", SET, "x"), ErrorCode.INVALID_REQUEST),
        ("1", ("a.plugins.own", SET, "x"), 0),
        ("1", ("num.io.threads", SET, "16"), 0),
        ("1", ("num.io.threads", SET, "17"), ErrorCode.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.cleanup.policy", APPEND, "compact"), 0),
        ("2", ("message.max.bytes", SET, "5"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_changes_of_a_broker(tmp_path, name, change_of_one, code):
    async with broker_to_ask(tmp_path) as ask:
        assert await change(ask, BROKER, name, change_of_one) == code


async def test_settings_outlast_a_restart(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await change(ask, BROKER, "1", ("message.max.bytes", SET, "5"), ("a.plugins.own", SET, "x"))
        await change(ask, GROUP, "g", ("share.isolation.level", SET, "read_committed"))
    async with broker_to_ask(tmp_path) as ask:
        entries = await settings_of(ask, BROKER, "1")
        assert chain(entries["message.max.bytes"]) == [
            ("message.max.bytes", "5", 2),
            ("message.max.bytes", "1048588", 5),
        ]
        assert (entries["a.plugins.own"].value, entries["a.plugins.own"].config_source) == (None, 2)
        assert (await settings_of(ask, GROUP, "g"))["share.isolation.level"].value == "read_committed"


async def test_a_groups_settings(tmp_path):
    async with broker_to_ask(tmp_path, {"group.consumer.session.timeout.ms": "47000"}) as ask:
        assert len(await settings_of(ask, GROUP, "g")) == 21
        assert await change(ask, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
        timeout = (await settings_of(ask, GROUP, "g"))["consumer.session.timeout.ms"]
        assert chain(timeout) == [
            ("consumer.session.timeout.ms", "50000", 8), ("group.consumer.session.timeout.ms", "47000", 4),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]  # fmt: skip
        assert (
            await change(ask, GROUP, "g", ("consumer.session.timeout.ms", SET, "1"))
            == ErrorCode.INVALID_CONFIG
        )
        assert await change(ask, GROUP, "g", ("no.such", SET, "1")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("change_of_one", "code"),
    [
        (("interval.ms", SET, "100"), 0),
        (("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (("interval.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (("match", SET, "client_id=a.*,client_source_port=9\\d+"), 0),
        (("match", SET, "client_id=["), ErrorCode.INVALID_CONFIG),
        (("match", SET, "shoe_size=43"), ErrorCode.INVALID_CONFIG),
        (("metrics", APPEND, "x"), ErrorCode.INVALID_CONFIG),
        (("no.such", SET, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_subscriptions_to_client_metrics(tmp_path, change_of_one, code):
    async with broker_to_ask(tmp_path) as ask:
        assert await change(ask, CLIENT_METRICS, "m", change_of_one) == code


@pytest.fixture
def logger():
    logger = logging.getLogger("barnabas.test_configs")
    levels = logging.root.level, logger.level
    yield logger
    logging.root.setLevel(levels[0])
    logger.setLevel(levels[1])


async def test_loggers_really_change(tmp_path, logger):
    async with broker_to_ask(tmp_path) as ask:
        assert await change(ask, BROKER_LOGGER, "1", ("root", SET, "ERROR")) == 0
        assert not logger.isEnabledFor(logging.WARNING)
        assert await change(ask, BROKER_LOGGER, "1", (logger.name, SET, "DEBUG")) == 0
        assert logger.isEnabledFor(logging.DEBUG)
        entry = (await settings_of(ask, BROKER_LOGGER, "1"))[logger.name]
        assert (entry.value, entry.config_source, entry.config_type) == ("DEBUG", 6, 0)
        assert await change(ask, BROKER_LOGGER, "1", (logger.name, DELETE, None)) == 0
        assert (await settings_of(ask, BROKER_LOGGER, "1"))[logger.name].value == "ERROR"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("barnabas.test_configs", SET, "LOUD")], ErrorCode.INVALID_CONFIG),
        ([("barnabas.test_configs", SET, "debug")], ErrorCode.INVALID_CONFIG),
        ([("barnabas.test_configs", APPEND, "INFO")], ErrorCode.INVALID_REQUEST),
        ([("barnabas.test_configs", SET, "INFO"), ("no.such", SET, "INFO")], ErrorCode.INVALID_CONFIG),
        ([("root", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_loggers_that_stay_as_they_are(tmp_path, logger, changes, code):
    async with broker_to_ask(tmp_path) as ask:
        before = logger.level
        assert await change(ask, BROKER_LOGGER, "1", *changes) == code
        assert logger.level == before


async def test_a_resource_that_is_named_twice_is_refused_twice(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t")
        for request, version in ((AlterConfigsRequest(), 2), (IncrementalAlterConfigsRequest(), 1)):
            resource = type(request).AlterConfigsResource(resource_type=TOPIC, resource_name="t")
            other = type(request).AlterConfigsResource(resource_type=BROKER, resource_name="1")
            request.resources = [resource, other, resource]
            codes = [answer.error_code for answer in (await ask(request, version)).responses]
            assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]


async def test_resources_are_listed_by_kind(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await make_topic(ask, "t")
        await change(ask, GROUP, "g", ("share.isolation.level", SET, "read_committed"))
        await change(ask, CLIENT_METRICS, "m", ("metrics", SET, "*"))

        async def listed(version, kinds):
            request = ListConfigResourcesRequest()
            request.resource_types = kinds
            answer = await ask(request, version)
            assert answer.error_code == 0
            return {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}

        everything = {(TOPIC, "t"), (BROKER, "1"), (BROKER_LOGGER, "1"), (GROUP, "g"), (CLIENT_METRICS, "m")}
        assert await listed(1, []) == everything
        assert await listed(1, [GROUP, TOPIC, GROUP]) == {(GROUP, "g"), (TOPIC, "t")}
        answer = await ask(ListConfigResourcesRequest(), 0)
        assert [resource.resource_name for resource in answer.config_resources] == ["m"]
        request = ListConfigResourcesRequest(resource_types=[1])
        assert (await ask(request, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(5))
async def test_what_is_described_has_an_empty_error_message(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=None
        )
        (result,) = (await ask(DescribeConfigsRequest(resources=[resource]), version)).results
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")


@pytest.mark.parametrize(
    ("release", "kind", "name", "is_known"),
    [
        ("4.0", GROUP, "g", True),
        ("3.9", GROUP, "g", False),
        ("3.9", CLIENT_METRICS, "m", True),
        ("3.6", CLIENT_METRICS, "m", False),
        ("2.4", BROKER_LOGGER, "1", True),
        ("2.3", BROKER_LOGGER, "1", False),
    ],
)
async def test_a_release_has_no_settings_of_what_came_later(tmp_path, release, kind, name, is_known):
    async with broker_to_ask(tmp_path, {"kafka.version": release}) as ask:
        entries = await settings_of(ask, kind, name) if is_known else {}
        first = next(iter(entries.items()), None)
        if first is None:
            result = await describe(ask, kind, name)
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert "came with" in result.error_message
            assert await change(ask, kind, name, ("x", SET, "1")) == ErrorCode.INVALID_REQUEST
        else:
            setting, entry = first
            assert await change(ask, kind, name, (setting, SET, entry.value)) == 0


async def test_a_type_that_is_not_known_is_wrong_before_it_is_refused(tmp_path):
    """As Kafka 3.9 answers for settings of groups: no user is allowed anything here."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    for number, (release, code) in enumerate(
        (("3.9", ErrorCode.INVALID_REQUEST), ("4.3", ErrorCode.GROUP_AUTHORIZATION_FAILED))
    ):
        settings = {"kafka.version": release, "authorizer.class.name": authorizer}
        async with broker_to_ask(tmp_path / str(number), settings) as ask:
            assert (await describe(ask, GROUP, "g")).error_code == code
            assert await change(ask, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == code


async def test_unknown_settings_are_kept_and_logged_in_few_lines(tmp_path, caplog):
    async with broker_to_ask(tmp_path) as ask:
        many = [(f"not.there.{number}\nERROR of somebody else", SET, "1") for number in range(1_000)]
        assert await change(ask, BROKER, "1", *many, validate_only=True) == 0
        assert caplog.messages == []
        for _ in range(20):
            assert await change(ask, BROKER, "1", *many, ("log.cleaner.threads", SET, "1")) == 0
        assert len(caplog.messages) == LINES_MAX
        start = "1000 settings of broker '1' are not known here, the first of them 'not.there.0\\nERROR of somebody else': "
        assert all(line.startswith(start) for line in caplog.messages)
        assert "not.there.999\nERROR of somebody else" in (await settings_of(ask, BROKER, "1"))
        assert await change(ask, BROKER, "1", ("log.cleaner.threads", SET, "2")) == 0
        assert len(caplog.messages) == LINES_MAX


@pytest.mark.parametrize("name", sorted(topic_settings.OWN))
async def test_an_own_setting_of_topics_is_shown_where_it_is_set(tmp_path, name):
    (of_brokers,) = topic_settings.SETTINGS[name].broker_names
    async with broker_to_ask(tmp_path, {of_brokers: "header"}) as ask:
        created = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=1,
                    replication_factor=1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                        for key, value in settings.items()
                    ],
                )
                for topic, settings in (("plain", {}), ("tuned", {name: "full"}))
            ],
            timeout_ms=1000,
        )
        plain, tuned = (await ask(created, 7)).topics
        assert name not in {config.name for config in plain.configs}
        assert {config.name: config.value for config in tuned.configs}[name] == "full"
        assert {config.name for config in plain.configs} == {*await settings_of(ask, TOPIC, "plain")}
        assert (await settings_of(ask, TOPIC, "tuned"))[name].value == "full"
        assert await change(ask, TOPIC, "plain", (name, SET, "full")) == 0
        assert (await settings_of(ask, TOPIC, "plain"))[name].value == "full"
        assert await change(ask, TOPIC, "plain", (name, DELETE, None)) == 0
        assert name not in await settings_of(ask, TOPIC, "plain")


async def test_own_settings_of_brokers_are_shown_where_they_are_set(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        assert not tables.own_names() & {*await settings_of(ask, BROKER, "1")}
        assert await change(ask, BROKER, "", ("log.record.validation", SET, "header")) == 0
        assert (await settings_of(ask, BROKER, "1"))["log.record.validation"].value == "header"
    async with broker_to_ask(tmp_path / "other", {"faults.seed": "5"}) as ask:
        assert tables.own_names() & {*await settings_of(ask, BROKER, "1")} == {"faults.seed"}
