"""A client learns nothing by its id of a topic that it may not describe, but that it may not."""

import pytest

from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.broker import ask_for_topic, broker_to_ask

from .test_acls import ADMIN, ALICE, SETTINGS, creation

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = bytes(range(16))
DELETE, DESCRIBE = 6, 8


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        asked.connection.principal = ADMIN
        await ask_for_topic(asked, "secret-plan")
        await ask_for_topic(asked, "open")
        answer = await asked(CreateAclsRequest([creation("open", operation=DESCRIBE)]), 3)
        assert [result.error_code for result in answer.results] == [0]
        asked.connection.principal = ALICE
        yield asked


def id_of(asked, name):
    return asked.services.metadata.image.topics[name].id


@pytest.mark.parametrize("version", [12, 13])
async def test_metadata_by_id_hides_the_name_of_an_undescribable_topic(asked, version):
    secret, open_ = id_of(asked, "secret-plan"), id_of(asked, "open")
    topics = [
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=each) for each in (secret, open_, UNKNOWN)
    ]
    answer = await asked(MetadataRequest(topics, include_topic_authorized_operations=True), version)
    denied, allowed, unknown = answer.topics
    assert (denied.error_code, denied.name, denied.topic_id) == (REFUSED, None, secret)
    assert (denied.partitions, denied.is_internal) == ([], False)
    assert denied.topic_authorized_operations == -(2**31)
    assert (allowed.error_code, allowed.name, len(allowed.partitions)) == (0, "open", 2)
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


async def test_metadata_by_name_hides_the_id_of_an_undescribable_topic(asked):
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("secret-plan", "open", "nowhere")]
    answer = await asked(MetadataRequest(topics, allow_auto_topic_creation=True), 12)
    by_name = {topic.name: topic for topic in answer.topics}
    for name in ("secret-plan", "nowhere"):
        assert (by_name[name].error_code, by_name[name].topic_id) == (REFUSED, bytes(16)), name
        assert by_name[name].partitions == []
    assert by_name["open"].topic_id == id_of(asked, "open")
    assert "nowhere" not in asked.services.metadata.image.topics


async def test_all_topics_are_those_that_the_client_may_describe(asked):
    answer = await asked(MetadataRequest(None), 12)
    assert [topic.name for topic in answer.topics] == ["open"]


async def test_deletion_by_id_hides_the_name_of_an_undescribable_topic(asked):
    secret, open_ = id_of(asked, "secret-plan"), id_of(asked, "open")
    states = [
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=each) for each in (secret, open_, UNKNOWN)
    ]
    answer = await asked(DeleteTopicsRequest(topics=states, timeout_ms=1_000), 6)
    told = {response.topic_id: (response.error_code, response.name) for response in answer.responses}
    assert told == {
        secret: (REFUSED, None), open_: (REFUSED, "open"), UNKNOWN: (ErrorCode.UNKNOWN_TOPIC_ID, None),
    }  # fmt: skip
    assert {"secret-plan", "open"} <= asked.services.metadata.image.topics.keys()
