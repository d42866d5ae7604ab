"""Differences between refusals of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.admin import known_differences as admin
from compat.kit.compare import KnownDifference

KNOWN: tuple[KnownDifference, ...] = (
    admin.KNOWN[0],
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
        "(create|describe|delete) acl .* any v.|(create|describe|delete) acl .* 0 v.|create acl pattern match v.",
        ".*",
        "Kafka closes the connection, or fails the whole request; Barnabas says which entry is wrong",
    ),
    KnownDifference(
        "(all seen|hidden): regex.*",
        "/MemberEpoch|/Assignment.*",
        "Kafka matches expressions after it has answered, Barnabas before",
        always=False,
    ),
    KnownDifference(
        "(all seen|hidden): Share v.*",
        "/Groups/s/GroupEpoch",
        "a new share group's epoch is counted once more when the states of its topics are there",
        always=False,
    ),
    KnownDifference(".*: transaction", ".*/TransactionStartTimeMs", "begun at different times", always=False),
    KnownDifference("InitProducerId .*", "/ProducerId", "ids are given in blocks", always=False),
    KnownDifference(
        "DescribeTransactions v.*", ".*/TransactionStartTimeMs", "begun at different times", always=False
    ),
)

KNOWN_WITH_ACL_AUTHORIZER: tuple[KnownDifference, ...] = (
    KnownDifference("make .*", ".*/Configs/.*", "settings of topics are those of Kafka 4"),
    KnownDifference("creates .*", ".*/Configs/.*", "settings of topics are those of Kafka 4"),
    KnownDifference("creates .*", ".*/TopicId", "Kafka 4 gives a topic that is only checked an id too"),
    KnownDifference(
        "creates .*",
        ".*/TopicConfigErrorCode",
        "Kafka 4 says it of topics that are made, not of those that are refused",
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
