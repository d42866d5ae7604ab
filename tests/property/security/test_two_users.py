"""Two users try everything at random while their ACLs change: neither gets more, or less, than a model of the ACLs says.

The whole broker answers, from the request's bytes on; the model goes through a list of ACLs (tests/models/acls.py).
"""

from __future__ import annotations

from random import Random

from barnabas.wire.generated.create_acls import CreateAclsRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_acls import DeleteAclsRequest
from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
from barnabas.wire.generated.delete_records import DeleteRecordsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_acls import DescribeAclsRequest
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.describe_groups import DescribeGroupsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.list_groups import ListGroupsRequest
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.produce import ProduceRequest
from tests.models.acls import ALL, ALLOW, DENY, LITERAL, PREFIXED, Acl, allows, allows_somewhere
from tests.support.broker import broker_to_ask
from tests.support.effort import drawing, examples
from tests.support.logs import batch

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 4, 5, 6, 7, 8, 10, 11
IDEMPOTENT_WRITE = 12
THE_CLUSTER = (CLUSTER, "kafka-cluster")
USERS = ("User:alice", "User:bob")
TOPICS, GROUPS, IDS = ("a", "ab", "b"), ("g", "gh", "h"), ("x", "y")
HERE, ELSEWHERE = "127.0.0.1", "10.9.9.9"
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {int(code) for code in (NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION)}
ATTEMPTS_BETWEEN_CHANGES = 25


class Attempts:
    """The two users. Each method below is an attempt: it asks, and returns the code that it got and the one expected."""

    def __init__(self, asked, random: Random) -> None:
        self.asked = asked
        self.random = random
        self.acls: list[Acl] = []
        self.user = ""

    def may(self, operation: int, kind: int, name: str) -> bool:
        return allows(self.acls, self.user, HERE, operation, kind, name)

    async def ask(self, request, version: int, user: str | None = None):
        self.asked.connection.principal = user or self.user
        return await self.asked(request, version)

    async def as_admin(self, request, version: int):
        return await self.ask(request, version, "User:admin")

    # --- around the attempts --------------------------------------------------------------------------------

    async def make_topics(self, *names: str) -> None:
        topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
        created = await self.as_admin(CreateTopicsRequest(topics), 7)
        assert not any(topic.error_code for topic in created.topics)
        for name in names:
            assert not self.code_of(await self.write(name, "User:admin"))

    async def change_acls(self) -> None:
        self.acls = [self.random_acl() for _ in range(self.random.randrange(3, 25))]
        everything = DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
        deleted = await self.as_admin(DeleteAclsRequest([everything]), 3)
        assert not deleted.filter_results[0].error_code
        creations = [
            CreateAclsRequest.AclCreation(
                acl.kind, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission
            )
            for acl in self.acls
        ]
        created = await self.as_admin(CreateAclsRequest(creations), 3)
        assert not any(result.error_code for result in created.results)

    def random_acl(self) -> Acl:
        random = self.random
        kind = random.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, TRANSACTIONAL_ID, CLUSTER))
        names = {TOPIC: TOPICS, GROUP: GROUPS, TRANSACTIONAL_ID: IDS, CLUSTER: THE_CLUSTER[1:]}[kind]
        return Acl(
            kind,
            LITERAL if kind == CLUSTER else random.choice((LITERAL, PREFIXED)),
            random.choice((*names, *names, "*")) if kind != CLUSTER else names[0],
            random.choice((*USERS, *USERS, "User:*")),
            random.choice(("*", "*", HERE, ELSEWHERE)),
            random.choice(
                (ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, 12)
            ),
            random.choice((ALLOW, ALLOW, ALLOW, DENY)),
        )

    # --- attempts -------------------------------------------------------------------------------------------

    @staticmethod
    def code_of(answer) -> int:
        return answer.responses[0].partition_responses[0].error_code

    def write(self, topic: str, user: str | None = None):
        records = batch(f"secret of {topic}".encode())
        data = ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(0, records)]
        )
        return self.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9, user)

    def end_of(self, topic: str) -> int:
        return next(log.log_end_offset for log in self.asked.services.logs if log.topic == topic)

    async def produce(self, topic: str, _group: str):
        before = self.end_of(topic)
        code = self.code_of(await self.write(topic))
        may = self.may(WRITE, TOPIC, topic)
        assert self.end_of(topic) == before + may
        return code, 0 if may else NO_TOPIC

    async def fetch(self, topic: str, _group: str):
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        asked = FetchRequest.FetchTopic(topic=topic, partitions=[partition])
        answer = await self.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[asked]), 11)
        part = answer.responses[0].partitions[0]
        may = self.may(READ, TOPIC, topic)
        assert may or not part.records
        return part.error_code, 0 if may else NO_TOPIC

    async def list_offsets(self, topic: str, _group: str):
        partition = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=-1)
        asked = ListOffsetsRequest.ListOffsetsTopic(topic, [partition])
        part = (await self.ask(ListOffsetsRequest(-1, topics=[asked]), 5)).topics[0].partitions[0]
        may = self.may(DESCRIBE, TOPIC, topic)
        assert may or part.offset == -1
        return part.error_code, 0 if may else NO_TOPIC

    async def metadata(self, topic: str, _group: str):
        asked = MetadataRequest.MetadataRequestTopic(name=topic)
        told = (await self.ask(MetadataRequest([asked], allow_auto_topic_creation=False), 12)).topics[0]
        may = self.may(DESCRIBE, TOPIC, topic)
        assert may or (told.topic_id == bytes(16) and not told.partitions)
        return told.error_code, 0 if may else NO_TOPIC

    async def all_topics(self, _topic: str, _group: str):
        answer = await self.ask(MetadataRequest(None, include_topic_authorized_operations=True), 12)
        bits = {row.name: row.topic_authorized_operations for row in answer.topics if row.name in TOPICS}
        assert bits == {
            name: sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11) if self.may(bit, TOPIC, name))
            for name in TOPICS
            if self.may(DESCRIBE, TOPIC, name)
        }
        return 0, 0

    async def cluster(self, _topic: str, _group: str):
        answer = await self.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
        may = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12) if self.may(bit, *THE_CLUSTER))
        assert answer.cluster_authorized_operations == (may if self.may(DESCRIBE, *THE_CLUSTER) else 0)
        return 0, 0

    async def commit(self, topic: str, group: str):
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, committed_offset=1)
        asked = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])
        answer = await self.ask(OffsetCommitRequest(group, -1, topics=[asked]), 8)
        expected = (
            NO_GROUP if not self.may(READ, GROUP, group) else 0 if self.may(READ, TOPIC, topic) else NO_TOPIC
        )
        return answer.topics[0].partitions[0].error_code, expected

    async def committed(self, topic: str, group: str):
        asked = OffsetFetchRequest.OffsetFetchRequestTopic(topic, [0])
        answer = await self.ask(OffsetFetchRequest(group, [asked]), 7)
        if not self.may(DESCRIBE, GROUP, group):
            return answer.error_code, NO_GROUP
        part = answer.topics[0].partitions[0]
        may = self.may(DESCRIBE, TOPIC, topic)
        assert may or part.committed_offset == -1
        return part.error_code, 0 if may else NO_TOPIC

    async def all_committed(self, _topic: str, group: str):
        answer = await self.ask(OffsetFetchRequest(group, None), 7)
        assert all(self.may(DESCRIBE, TOPIC, topic.name) for topic in answer.topics)
        return answer.error_code, 0 if self.may(DESCRIBE, GROUP, group) else NO_GROUP

    async def join(self, _topic: str, group: str):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
        request = JoinGroupRequest(group, 10_000, 10_000, protocol_type="consumer", protocols=[protocol])
        code = (await self.ask(request, 5)).error_code
        return code, ErrorCode.MEMBER_ID_REQUIRED if self.may(READ, GROUP, group) else NO_GROUP

    async def list_groups(self, _topic: str, _group: str):
        seen = {group.group_id for group in (await self.ask(ListGroupsRequest(), 4)).groups}
        all_of_them = {group.group_id for group in (await self.as_admin(ListGroupsRequest(), 4)).groups}
        is_open = self.may(DESCRIBE, *THE_CLUSTER)
        assert seen == {name for name in all_of_them if is_open or self.may(DESCRIBE, GROUP, name)}
        return 0, 0

    async def describe_group(self, _topic: str, group: str):
        code = (await self.ask(DescribeGroupsRequest([group]), 5)).groups[0].error_code
        return code, 0 if self.may(DESCRIBE, GROUP, group) else NO_GROUP

    async def delete_group(self, _topic: str, group: str):
        code = (await self.ask(DeleteGroupsRequest([group]), 2)).results[0].error_code
        return code, 0 if self.may(DELETE, GROUP, group) else NO_GROUP

    async def find_group(self, _topic: str, group: str):
        answer = await self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        return answer.coordinators[0].error_code, 0 if self.may(DESCRIBE, GROUP, group) else NO_GROUP

    async def create_topic(self, topic: str, _group: str):
        new = CreateTopicsRequest.CreatableTopic(f"{topic}-new", 1, 1)
        answer = await self.ask(CreateTopicsRequest([new], validate_only=True), 7)
        may = self.may(CREATE, *THE_CLUSTER) or self.may(CREATE, TOPIC, new.name)
        return answer.topics[0].error_code, 0 if may else NO_TOPIC

    async def delete_topic(self, topic: str, _group: str):
        if self.random.random() < 0.9:  # a deletion takes longer than anything else here
            return 0, 0
        answer = await self.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000), 5)
        may_all = self.may(DELETE, *THE_CLUSTER)
        may = may_all or (self.may(DELETE, TOPIC, topic) and self.may(DESCRIBE, TOPIC, topic))
        assert (topic in self.asked.services.metadata.image.topics) is not may
        if may:
            await self.make_topics(topic)
        return answer.responses[0].error_code, 0 if may else NO_TOPIC

    async def delete_records(self, topic: str, _group: str):
        partition = DeleteRecordsRequest.DeleteRecordsPartition(0, 0)
        asked = DeleteRecordsRequest.DeleteRecordsTopic(topic, [partition])
        answer = await self.ask(DeleteRecordsRequest([asked], 1000), 2)
        return answer.topics[0].partitions[0].error_code, 0 if self.may(DELETE, TOPIC, topic) else NO_TOPIC

    async def grow_topic(self, topic: str, _group: str):
        asked = CreatePartitionsRequest.CreatePartitionsTopic(topic, 1)
        code = (await self.ask(CreatePartitionsRequest([asked], 1000), 3)).results[0].error_code
        return code, ErrorCode.INVALID_PARTITIONS if self.may(ALTER, TOPIC, topic) else NO_TOPIC

    async def describe_configs(self, topic: str, _group: str):
        resource = DescribeConfigsRequest.DescribeConfigsResource(TOPIC, topic, ["retention.ms"])
        code = (await self.ask(DescribeConfigsRequest([resource]), 4)).results[0].error_code
        return code, 0 if self.may(DESCRIBE_CONFIGS, TOPIC, topic) else NO_TOPIC

    async def alter_configs(self, topic: str, _group: str):
        config = IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "100000000")
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, topic, [config])
        code = (
            (await self.ask(IncrementalAlterConfigsRequest([resource], validate_only=True), 1))
            .responses[0]
            .error_code
        )
        return code, 0 if self.may(ALTER_CONFIGS, TOPIC, topic) else NO_TOPIC

    async def producer_id(self, _topic: str, _group: str):
        code = (await self.ask(InitProducerIdRequest(None), 4)).error_code
        somewhere = allows_somewhere(self.acls, self.user, HERE, WRITE, TOPIC)
        return code, 0 if self.may(IDEMPOTENT_WRITE, *THE_CLUSTER) or somewhere else NO_CLUSTER

    async def transaction(self, _topic: str, _group: str):
        id_ = self.random.choice(IDS)
        code = (await self.ask(InitProducerIdRequest(id_, 60_000), 4)).error_code
        return code, 0 if self.may(WRITE, TRANSACTIONAL_ID, id_) else NO_TRANSACTION

    async def describe_acls(self, _topic: str, _group: str):
        answer = await self.ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        may = self.may(DESCRIBE, *THE_CLUSTER)
        assert sum(len(resource.acls) for resource in answer.resources) == (len(set(self.acls)) if may else 0)
        return answer.error_code, 0 if may else NO_CLUSTER

    async def create_acls(self, topic: str, _group: str):
        wrong = CreateAclsRequest.AclCreation(TOPIC, "", LITERAL, self.user, "*", ALL, ALLOW)
        code = (await self.ask(CreateAclsRequest([wrong]), 3)).results[0].error_code
        return code, ErrorCode.INVALID_REQUEST if self.may(ALTER, *THE_CLUSTER) else NO_CLUSTER


ATTEMPTS = [
    getattr(Attempts, name)
    for name in (
        "produce", "fetch", "list_offsets", "metadata", "all_topics", "cluster", "commit", "committed", "all_committed",
        "join", "list_groups", "describe_group", "delete_group", "find_group", "create_topic", "delete_topic",
        "delete_records", "grow_topic", "describe_configs", "alter_configs", "producer_id", "transaction",
        "describe_acls", "create_acls",
    )
]  # fmt: skip
NO_GROUP_THERE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP)


async def test_neither_user_gets_more_or_less_than_the_acls_say(tmp_path):
    random = drawing()
    outcomes = {True: 0, False: 0}
    async with broker_to_ask(tmp_path, SETTINGS) as asked:
        attempts = Attempts(asked, random)
        await attempts.make_topics(*TOPICS)
        for number in range(examples(1500)):
            if number % ATTEMPTS_BETWEEN_CHANGES == 0:
                await attempts.change_acls()
            attempts.user = random.choice(USERS)
            attempt = random.choice(ATTEMPTS)
            topic, group = random.choice(TOPICS), random.choice(GROUPS)
            got, expected = await attempt(attempts, topic, group)
            about = (number, attempt.__name__, attempts.user, topic, group, attempts.acls)
            if attempt.__name__ == "delete_group" and not expected:
                assert got == 0 or got in NO_GROUP_THERE, about
            else:
                assert got == expected, about
            outcomes[expected in REFUSALS] += 1
    assert min(outcomes.values()) > 50
