"""Differences between refusals of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

_ALWAYS: tuple[KnownDifference, ...] = (
    KnownDifference(
        ".*", ".*/ErrorMessage", "words for people where Kafka has none, or an empty text", theirs=(None, "")
    ),
    KnownDifference("InitProducerId .*", "/ProducerId", "ids are given in blocks", always=False),
    KnownDifference(
        "DescribeTransactions v.*", ".*/TransactionStartTimeMs", "begun at different times", always=False
    ),
    KnownDifference(
        "(create|describe|delete) acl .* any v.|(create|describe|delete) acl .* 0 v.|create acl pattern match v.",
        ".*",
        "Kafka closes the connection, or fails the whole request; Barnabas says which entry is wrong",
    ),
)

_WITH_KAFKA_4: tuple[KnownDifference, ...] = (
    KnownDifference(
        "ShareFetch v.*: no READ on TOPIC nothing",
        ".*",
        "Kafka stumbles over a topic id of zero",
    ),
    KnownDifference(
        "AlterShareGroupOffsets v.*: no READ on TOPIC .*",
        ".*/TopicId",
        "Kafka tells the id of a topic to who may not read it, if there is the topic",
    ),
    KnownDifference(
        "(all seen|hidden): regex.*",
        "/MemberEpoch|/Assignment.*",
        "Kafka matches expressions after it has answered, Barnabas before",
        always=False,
    ),
    KnownDifference(
        "(join s|AlterShareGroupOffsets v0: join)",
        "/Assignment/TopicPartitions",
        "the first answer names what the second heartbeat assigns, so that a member begins five seconds sooner",
    ),
    KnownDifference(".*: transaction", ".*/TransactionStartTimeMs", "begun at different times", always=False),
)

_WITH_KAFKA_3: tuple[KnownDifference, ...] = (
    KnownDifference(
        "(create|creates|make) .*",
        r".*/Configs/message\.(downconversion\.enable|format\.version|timestamp\.difference\.max\.ms)",
        "settings of topics that Kafka 4 has no longer",
    ),
    KnownDifference(
        "DescribeConfigs v0: .*",
        ".*/IsDefault",
        "Kafka 3.9 leaves the field of v0 as it is: nothing is a default",
    ),
)

_WITH_KAFKA_3_ON_KRAFT: tuple[KnownDifference, ...] = (
    KnownDifference(
        "OffsetFetch v0: .*",
        ".*/ErrorCode",
        "v0 reads offsets from ZooKeeper, and a Kafka with KRaft has none: it does not serve what it advertises",
    ),
)

_WITH_ACL_AUTHORIZER: tuple[KnownDifference, ...] = (
    KnownDifference(
        "create no-describe-configs|creates .*",
        ".*/TopicId",
        "Kafka 4 gives the id too where settings may not be described, and where a topic is only checked",
    ),
    KnownDifference(
        "create nothing|creates .*|CreateTopics v7: no (CREATE|DESCRIBE_CONFIGS) on TOPIC nothing",
        ".*/TopicConfigErrorCode",
        "Kafka 4 says it of topics that are made, not of those that are refused",
    ),
    KnownDifference(
        "DeleteTopics v6: by id nothing",
        "/Responses/None/Error(Code|Message)",
        "neither a name nor an id: AclAuthorizer is asked for no name at all, and refuses that",
    ),
    KnownDifference(
        "create acl (no principal|principal without type) v.",
        ".*",
        "AclAuthorizer stumbles over principals without a type",
    ),
    KnownDifference(
        "create acl odd name v.",
        ".*",
        "a name with a slash cannot be that of a znode; here it is kept in a journal",
    ),
    KnownDifference(".*", ".* a/b .*", "the same name afterwards"),
    KnownDifference(
        "delete acl .*",
        "/FilterResults/[02]/.*",
        "AclAuthorizer names an ACL for its first filter only; filters that mean nothing match nothing there",
    ),
)


def of(*, of_kafka_3: bool, mode: str) -> tuple[KnownDifference, ...]:
    """Return what is known of a comparison with a Kafka before 4 or of 4, with KRaft or on ZooKeeper."""
    if not of_kafka_3:
        return (*_ALWAYS, *_WITH_KAFKA_4)
    return (*_ALWAYS, *_WITH_KAFKA_3, *(_WITH_KAFKA_3_ON_KRAFT if mode == "kraft" else _WITH_ACL_AUTHORIZER))
