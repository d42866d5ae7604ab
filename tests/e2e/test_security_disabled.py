"""A broker without an authorizer and other replicas answers stock admin clients that ask for ACLs and elections."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ResourcePatternFilter
from kafka.admin import ACLResourcePatternType as PatternType
from kafka.admin import ResourceType as Resource
from kafka.errors import SecurityDisabledError

from .conftest import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

WHO = ("User:k", "*", AclOperation.READ, AclPermissionType.ALLOW)
BINDING = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, *WHO)
FILTER = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)

ANYTHING = ResourcePatternFilter(Resource.ANY, "t", PatternType.ANY)


@pytest.mark.parametrize("what", ["create", "delete"])
def test_acls_cannot_be_changed(broker: BrokerProcess, what: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    future = (
        admin.create_acls([BINDING])[BINDING] if what == "create" else admin.delete_acls([FILTER])[FILTER]
    )
    with pytest.raises(KafkaException) as refused:
        future.result(10)
    error = refused.value.args[0]
    assert error.code() == KafkaError.SECURITY_DISABLED
    assert "No Authorizer is configured" in error.str()


def test_acls_cannot_be_described(broker: BrokerProcess) -> None:
    # By kafka-python: confluent-kafka drops the error of this answer.
    requested = ACLFilter("User:k", "*", ACLOperation.ANY, ACLPermissionType.ANY, ANYTHING)
    with (
        closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin,
        pytest.raises(SecurityDisabledError, match="No Authorizer is configured"),
    ):
        admin.describe_acls(requested)


def test_no_election_is_needed(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("elected", 1, 1)])["elected"].result(10)
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        expected, unknown = TopicPartition("elected", 0), TopicPartition("elected", 7)
        results = admin.elect_leaders(kind, [expected, unknown]).result(10)
        assert results[expected].code() == KafkaError.ELECTION_NOT_NEEDED
        assert results[unknown].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
