"""Scenarios with changing ACLs: hidden topics of groups and transactions, rights for producer ids and creating topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from compat.kit.compare import Seen, Step
from compat.kit.wire import ZERO_UUID, Values
from compat.security.acl_steps import (
    ALL,
    ALLOW,
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOKEN,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
    acl,
    acl_filter,
    set_acls,
)
from compat.security.requests import REQUESTS, Names
from compat.security.sides import ADMIN

ALICE, BOB = "alice", "bob"
FREE, HIDDEN = "open-topic", "hidden-topic"
TRANSACTIONAL = "of-hidden"
"""An id of its own: Kafka still ends transactions of the refusals when others begin."""
EVERYTHING = [acl(ALL, kind, "*") for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)]
HIDE = acl(DESCRIBE, TOPIC, HIDDEN, permission=DENY)


def topics(*names: str) -> Iterator[Step]:
    """Make topics, as the administrator."""
    asked = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in names]
    yield Step(f"make {' '.join(names)}", "CreateTopics", 7, {"Topics": asked, "timeoutMs": 5000}, ADMIN)
    request = {"Topics": [{"Name": name} for name in names]}
    yield Step(f"{' '.join(names)} known", "Metadata", 12, request, ADMIN)


def id_of(seen: Seen, name: str) -> bytes:
    """Return the id that a side has given to one of the first two topics."""
    for created in seen[f"make {FREE} {HIDDEN}"]["Topics"]:
        if created["Name"] == name:
            topic_id: bytes = created["TopicId"]
            return topic_id
    return ZERO_UUID


def hidden() -> Iterator[Step]:
    """Groups of each kind and a transaction with a topic that their owner may no longer describe."""
    yield from topics(FREE, HIDDEN)
    yield from set_acls("everything", EVERYTHING)
    both = {"SubscribedTopicNames": [FREE, HIDDEN]}
    for kind, group in (("Consumer", "c"), ("Share", "s")):
        values = {**REQUESTS[f"{kind}GroupHeartbeat"](Names(group=group)), **both}
        yield Step(f"join {group}", f"{kind}GroupHeartbeat", 1, values, ALICE)
    values = REQUESTS["StreamsGroupHeartbeat"](Names(group="st"))
    values["Topology"] = {
        "Epoch": 0,
        "Subtopologies": [{"SubtopologyId": "s", "SourceTopics": [FREE, HIDDEN]}],
    }
    yield Step("join st", "StreamsGroupHeartbeat", 0, values, ALICE)
    commits = [
        {"Name": name, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 3}]} for name in (FREE, HIDDEN)
    ]
    values = {"GroupId": "g", "GenerationIdOrMemberEpoch": -1, "Topics": commits}
    yield Step("commit g", "OffsetCommit", 8, values, ALICE)
    values = {"TransactionalId": TRANSACTIONAL, "TransactionTimeoutMs": 60_000}
    yield Step("begin", "InitProducerId", 4, values, ALICE)

    def partitions(seen: Seen) -> Values:
        names = [{"Name": name, "Partitions": [0]} for name in (FREE, HIDDEN)]
        return {
            "V3AndBelowTransactionalId": TRANSACTIONAL,
            "V3AndBelowProducerId": seen["begin"]["ProducerId"],
            "V3AndBelowProducerEpoch": seen["begin"]["ProducerEpoch"],
            "V3AndBelowTopics": names,
        }

    yield Step("add", "AddPartitionsToTxn", 3, partitions, ALICE)
    for label, more in (("all seen", []), ("hidden", [HIDE])):
        if more:
            yield from set_acls("hide", more, replace=False)
        yield from looks(label)
    yield Step("add hidden", "AddPartitionsToTxn", 3, partitions, ALICE)


def looks(label: str) -> Iterator[Step]:
    """Ask alice's questions about her groups and her transaction."""
    for kind, group, versions in (("Consumer", "c", (0, 1)), ("Share", "s", (1,)), ("Streams", "st", (0,))):
        for version in versions:
            values = {"GroupIds": [group, "none"], "IncludeAuthorizedOperations": True}
            yield Step(f"{label}: {kind} v{version}", f"{kind}GroupDescribe", version, values, ALICE)
    yield Step(
        f"{label}: classic",
        "DescribeGroups",
        5,
        {"Groups": ["g", "c"], "IncludeAuthorizedOperations": True},
        ALICE,
    )
    yield Step(f"{label}: list", "ListGroups", 5, {}, ALICE)
    for version in (5, 8, 9):
        everything = {"GroupId": "g", "Topics": None, "Groups": [{"GroupId": "g", "Topics": None}]}
        yield Step(f"{label}: all offsets v{version}", "OffsetFetch", version, everything, ALICE)
        named = [{"Name": name, "PartitionIndexes": [0]} for name in (FREE, HIDDEN, "nothing")]
        values = {"GroupId": "g", "Topics": named, "Groups": [{"GroupId": "g", "Topics": named}]}
        yield Step(f"{label}: offsets v{version}", "OffsetFetch", version, values, ALICE)
    yield Step(
        f"{label}: share offsets",
        "DescribeShareGroupOffsets",
        0,
        {"Groups": [{"GroupId": "s", "Topics": None}]},
        ALICE,
    )
    transactions = {"TransactionalIds": [TRANSACTIONAL, "y"]}
    yield Step(f"{label}: transaction", "DescribeTransactions", 0, transactions, ALICE)
    yield Step(f"{label}: transactions", "ListTransactions", 1, {}, ALICE)
    regex = REQUESTS["ConsumerGroupHeartbeat"](Names(group=f"regex-{label}"))
    regex |= {"SubscribedTopicNames": None, "SubscribedTopicRegex": ".*-topic"}
    yield Step(f"{label}: regex", "ConsumerGroupHeartbeat", 1, regex, ALICE)

    def beat(seen: Seen) -> Values:
        fields = {"RebalanceTimeoutMs": -1, "TopicPartitions": None, "SubscribedTopicRegex": None}
        return {**regex, **fields, "MemberEpoch": seen[f"{label}: regex"]["MemberEpoch"]}

    yield Step(f"{label}: regex beat", "ConsumerGroupHeartbeat", 1, beat, ALICE)
    yield Step(
        f"{label}: regex group described", "ConsumerGroupDescribe", 1, {"GroupIds": [f"regex-{label}"]}, ALICE
    )  # fmt: skip


PRODUCERS = {
    "none": [],
    "idempotent write": [acl(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)],
    "write one": [acl(WRITE, TOPIC, "t")],
    "all of one": [acl(ALL, TOPIC, "t")],
    "read one": [acl(READ, TOPIC, "t")],
    "write wildcard": [acl(WRITE, TOPIC, "*")],
    "write prefix": [acl(WRITE, TOPIC, "t", pattern=PREFIXED)],
    "everybody writes": [acl(WRITE, TOPIC, "t", user="*")],
    "bob writes": [acl(WRITE, TOPIC, "t", user=BOB)],
    "elsewhere": [acl(WRITE, TOPIC, "t", host="10.1.2.3")],
    "here": [acl(WRITE, TOPIC, "t", host="127.0.0.1")],
    "denied the same": [acl(WRITE, TOPIC, "t"), acl(WRITE, TOPIC, "t", permission=DENY)],
    "denied another": [acl(WRITE, TOPIC, "t"), acl(WRITE, TOPIC, "u", permission=DENY)],
    "denied all": [acl(WRITE, TOPIC, "t"), acl(ALL, TOPIC, "*", permission=DENY)],
    "denied prefix": [acl(WRITE, TOPIC, "topic"), acl(WRITE, TOPIC, "to", permission=DENY, pattern=PREFIXED)],
    "denied longer prefix": [
        acl(WRITE, TOPIC, "t", pattern=PREFIXED), acl(WRITE, TOPIC, "to", permission=DENY, pattern=PREFIXED),
    ],
    "denied read": [acl(WRITE, TOPIC, "t"), acl(READ, TOPIC, "*", permission=DENY)],
    "denied idempotent": [
        acl(WRITE, TOPIC, "t"), acl(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, permission=DENY),
    ],
    "another's transaction": [acl(WRITE, TRANSACTIONAL_ID, "y")],
    "its transaction": [acl(WRITE, TRANSACTIONAL_ID, "z")],
    "its transaction described": [acl(DESCRIBE, TRANSACTIONAL_ID, "z")],
}  # fmt: skip


def producers() -> Iterator[Step]:
    """Steps that ask for a producer id, with and without a transactional id."""
    for label, acls in PRODUCERS.items():
        yield from set_acls(f"producer {label}", acls)
        for transactional_id in (None, "z"):
            values = {"TransactionalId": transactional_id, "TransactionTimeoutMs": 60_000}
            yield Step(f"InitProducerId {label} {transactional_id}", "InitProducerId", 4, values, ALICE)
        yield Step(
            f"{label}: coordinator",
            "FindCoordinator",
            4,
            {"KeyType": 1, "CoordinatorKeys": ["z", "y"]},
            ALICE,
        )


MAKERS = {
    "describe": [acl(DESCRIBE, TOPIC, "m", pattern=PREFIXED)],
    "write": [acl(WRITE, TOPIC, "m", pattern=PREFIXED)],
    "create": [acl(CREATE, TOPIC, "m", pattern=PREFIXED)],
    "create and describe": [acl(CREATE, TOPIC, "m", pattern=PREFIXED), acl(DESCRIBE, TOPIC, "*")],
    "cluster": [acl(CREATE, CLUSTER, CLUSTER_NAME)],
    "cluster and describe": [acl(CREATE, CLUSTER, CLUSTER_NAME), acl(DESCRIBE, TOPIC, "*")],
    "cluster but one denied": [
        acl(CREATE, CLUSTER, CLUSTER_NAME), acl(ALL, TOPIC, "*"),
        acl(CREATE, TOPIC, "m", permission=DENY, pattern=PREFIXED),
    ],
}  # fmt: skip


def makers() -> Iterator[Step]:
    """Steps that make topics by Metadata and by CreateTopics, and delete them."""
    for number, (label, acls) in enumerate(MAKERS.items()):
        yield from set_acls(f"maker {label}", acls)
        by_metadata, created = f"m-{number}", f"made-{number}"
        asked = {
            "Topics": [{"Name": by_metadata}, {"Name": f"other-{number}"}],
            "AllowAutoTopicCreation": True,
        }
        for version in (4, 12):
            yield Step(f"makes {label} v{version}", "Metadata", version, asked, ALICE)
        topics = [
            {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in (created, f"not-{number}")
        ]
        for validate in (True, False):
            values = {"Topics": topics, "timeoutMs": 5000, "validateOnly": validate}
            yield Step(f"creates {label} {validate}", "CreateTopics", 7, values, ALICE)
        yield Step(
            f"seen {label}", "Metadata", 12, {"Topics": [{"Name": created}, {"Name": by_metadata}]}, ALICE
        )
        yield Step(
            f"adds {label}",
            "CreatePartitions",
            3,
            {"Topics": [{"Name": created, "Count": 2}], "TimeoutMs": 5000},
            ALICE,
        )
    yield from set_acls("deleter", [acl(DELETE, CLUSTER, CLUSTER_NAME)])
    for name in ("made-4", "nothing"):
        values = {"TopicNames": [name], "TimeoutMs": 5000}
        yield Step(f"deletes {name}", "DeleteTopics", 5, values, ALICE)
    yield from deletions()


DELETERS = {
    "who may describe": [acl(DESCRIBE, TOPIC, "*")],
    "who may delete": [acl(DELETE, TOPIC, "*")],
    "who may delete and not describe": [acl(DELETE, TOPIC, "*"), acl(DESCRIBE, TOPIC, "*", permission=DENY)],
    "of the cluster, but not the topic": [
        acl(DELETE, CLUSTER, CLUSTER_NAME),
        acl(DELETE, TOPIC, "*", permission=DENY),
    ],
}


def deletions() -> Iterator[Step]:
    """DeleteTopics by name and by id, of topics that are there and that are not."""
    for number, (label, acls) in enumerate(DELETERS.items()):
        names = (f"gone-{number}", f"gone-by-id-{number}")
        yield from topics(*names)
        yield from set_acls(f"deleter {label}", acls)

        def by_id(seen: Seen, number: int = number) -> Values:
            created = seen[f"make gone-{number} gone-by-id-{number}"]["Topics"]
            topic_id = next(topic["TopicId"] for topic in created if topic["Name"] == f"gone-by-id-{number}")
            return {"Topics": [{"Name": None, "TopicId": topic_id}], "TimeoutMs": 5000}

        for name in (names[0], "nothing"):
            values = {"TopicNames": [name], "TimeoutMs": 5000}
            yield Step(f"deletes {name}, {label}", "DeleteTopics", 5, values, ALICE)
        yield Step(f"deletes by id, {label}", "DeleteTopics", 6, by_id, ALICE)


ENTRIES = {
    "right": acl(READ, TOPIC, "t"),
    "again": acl(READ, TOPIC, "t"),
    "prefix": acl(READ, TOPIC, "t", pattern=PREFIXED),
    "type 99": acl(READ, 99, "t"),
    "pattern 99": acl(READ, TOPIC, "t", pattern=99),
    "operation 99": acl(99, TOPIC, "t"),
    "permission 9": acl(READ, TOPIC, "t", permission=9),
    "empty name": acl(READ, TOPIC, ""),
    "another cluster": acl(DESCRIBE, CLUSTER, "x"),
    "cluster": acl(DESCRIBE, CLUSTER, CLUSTER_NAME),
    "prefixed cluster": acl(DESCRIBE, CLUSTER, CLUSTER_NAME, pattern=PREFIXED),
    "no principal": {**acl(READ, TOPIC, "t"), "Principal": ""},
    "principal without type": {**acl(READ, TOPIC, "t"), "Principal": "alice"},
    "principal without name": {**acl(READ, TOPIC, "t"), "Principal": "User:"},
    "group of users": {**acl(READ, TOPIC, "t"), "Principal": "Group:*"},
    "any host": acl(READ, TOPIC, "t", host=""),
    "a network": acl(READ, TOPIC, "t", host="10.0.0.0/8"),
    "odd name": acl(READ, TOPIC, "a/b c\u00fc"),
    "wildcard": acl(ALL, GROUP, "*"),
    "token": acl(DESCRIBE, TOKEN, "tok"),
    "user": acl(13, USER, "User:x"),
    "operation that topics do not have": acl(IDEMPOTENT_WRITE, TOPIC, "t"),
    "type any": acl(READ, 1, "t"),
    "pattern any": acl(READ, TOPIC, "t", pattern=1),
    "pattern match": acl(READ, TOPIC, "t", pattern=2),
    "operation any": acl(1, TOPIC, "t"),
    "permission any": acl(READ, TOPIC, "t", permission=1),
    "type 0": acl(READ, 0, "t"),
    "pattern 0": acl(READ, TOPIC, "t", pattern=0),
    "operation 0": acl(0, TOPIC, "t"),
    "permission 0": acl(READ, TOPIC, "t", permission=0),
}
FILTERS = {
    "all": acl_filter(),
    "topics": acl_filter(kind=TOPIC),
    "literal": acl_filter(pattern=LITERAL),
    "prefixed": acl_filter(pattern=PREFIXED),
    "named": acl_filter(name="t"),
    "match": acl_filter(name="tea", pattern=2),
    "match without name": acl_filter(pattern=2),
    "match wildcard": acl_filter(name="g", kind=GROUP, pattern=2),
    "wildcard": acl_filter(name="*"),
    "principal": acl_filter(principal="User:alice"),
    "principal of all": acl_filter(principal="User:*"),
    "host": acl_filter(host="*"),
    "host here": acl_filter(host="127.0.0.1"),
    "operation": acl_filter(operation=READ),
    "denied": acl_filter(permission=DENY),
    "empty name": acl_filter(name=""),
    "type 99": acl_filter(kind=99),
    "pattern 99": acl_filter(pattern=99),
    "operation 99": acl_filter(operation=99),
    "permission 9": acl_filter(permission=9),
    "type 0": acl_filter(kind=0),
    "pattern 0": acl_filter(pattern=0),
    "operation 0": acl_filter(operation=0),
    "permission 0": acl_filter(permission=0),
}


def changes() -> Iterator[Step]:
    """The APIs of ACLs themselves: entries and filters right and wrong, by users with the permission and without."""
    yield from set_acls("acls", [])
    for label, entry in ENTRIES.items():
        for version in (1, 2, 3):
            yield Step(f"create acl {label} v{version}", "CreateAcls", version, {"Creations": [entry]}, ADMIN)
    mixed = [ENTRIES[label] for label in ("right", "empty name", "type 99", "wildcard", "another cluster")]
    yield Step("create acl mixed v3", "CreateAcls", 3, {"Creations": mixed}, ADMIN)
    yield Step("create acl none v3", "CreateAcls", 3, {"Creations": []}, ADMIN)
    for label, fields in FILTERS.items():
        for version in (1, 2, 3):
            yield Step(f"describe acl {label} v{version}", "DescribeAcls", version, fields, ADMIN)
    for label, allowed in (("nobody", []), ("describes", [DESCRIBE]), ("alters", [ALTER])):
        yield from set_acls(f"acls {label}", [acl(operation, CLUSTER, CLUSTER_NAME) for operation in allowed])
        for user in ("", ALICE):
            who = f"{user or 'anonymous'} {label}"
            yield Step(f"{who} describes", "DescribeAcls", 3, acl_filter(), user)
            yield Step(f"{who} creates", "CreateAcls", 3, {"Creations": mixed}, user)
            yield Step(
                f"{who} deletes",
                "DeleteAcls",
                3,
                {"Filters": [acl_filter(name="a"), acl_filter(name="b")]},
                user,
            )
    for label, fields in FILTERS.items():
        yield from set_acls(
            f"before {label}",
            [acl(READ, TOPIC, "t"), acl(READ, TOPIC, "t", pattern=PREFIXED), acl(ALL, GROUP, "*")],
        )
        for version in (1, 3):
            twice = {"Filters": [fields, acl_filter(name="u"), fields]}
            yield Step(f"delete acl {label} v{version}", "DeleteAcls", version, twice, ADMIN)


RANDOM_NAMES = ("a", "ab", "abc", "b", "ba")
SETS = 25


def decisions(seed: int) -> Iterator[Step]:
    """ACLs at random, and the operations that they allow: by the authorized operations of Metadata and groups."""
    random = Random(seed)
    yield from topics(*RANDOM_NAMES)
    for number in range(SETS):
        acls = []
        for _ in range(random.randrange(1, 14)):
            kind = random.choice((TOPIC, TOPIC, TOPIC, GROUP, CLUSTER))
            name = CLUSTER_NAME if kind == CLUSTER else random.choice((*RANDOM_NAMES, "*"))
            pattern = LITERAL if kind == CLUSTER else random.choice((LITERAL, PREFIXED))
            operation = random.choice((ALL, DESCRIBE, *range(READ, 13), CLUSTER_ACTION))
            user = random.choice((ALICE, ALICE, BOB, "ANONYMOUS", "*"))
            permission = random.choice((ALLOW, ALLOW, DENY))
            host = random.choice(("*", "*", "127.0.0.1", "10.1.2.3"))
            acls.append(
                acl(operation, kind, name, user=user, pattern=pattern, permission=permission, host=host)
            )
        yield from set_acls(f"random {seed} {number}", acls)
        for user in ("", ALICE, BOB):
            label = f"random {seed} {number} {user}"
            named = {
                "Topics": [{"Name": name} for name in RANDOM_NAMES],
                "IncludeTopicAuthorizedOperations": True,
                "IncludeClusterAuthorizedOperations": True,
            }
            yield Step(f"{label}: topics", "Metadata", 10, named, user)
            yield Step(f"{label}: all topics", "Metadata", 10, {**named, "Topics": None}, user)
            cluster = {"IncludeClusterAuthorizedOperations": True, "EndpointType": 1}
            yield Step(f"{label}: cluster", "DescribeCluster", 1, cluster, user)
            groups = {"Groups": list(RANDOM_NAMES), "IncludeAuthorizedOperations": True}
            yield Step(f"{label}: groups", "DescribeGroups", 5, groups, user)
            yield Step(f"InitProducerId {label}", "InitProducerId", 4, {"TransactionalId": None}, user)


def scenarios(seed: int) -> dict[str, Callable[[], Iterator[Step]]]:
    """Return the scenarios by name, in an order in which they may follow each other."""
    return {
        "hidden": hidden,
        "producers": producers,
        "makers": makers,
        "changes": changes,
        "decisions": lambda: decisions(seed),
    }
