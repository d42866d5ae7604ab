"""Differences between refusals of Apache Kafka and of Barnabas that are meant."""

from __future__ import annotations

from compat.admin import meant as admin
from compat.kit.compare import Meant

MEANT: tuple[Meant, ...] = (
    admin.MEANT[0],
    Meant(
        "ShareFetch v.*: no READ on TOPIC nothing",
        ".*",
        "Kafka stumbles over a topic id of zero",
    ),
    Meant(
        "AlterShareGroupOffsets v.*: no READ on TOPIC .*",
        ".*/TopicId",
        "Kafka tells the id of a topic to who may not read it, if there is the topic",
    ),
    Meant(
        "(create|describe|delete) acl .* any v.|(create|describe|delete) acl .* 0 v.|create acl pattern match v.",
        ".*",
        "Kafka closes the connection, or fails the whole request; Barnabas says which entry is wrong",
    ),
    Meant(
        "(all seen|hidden): regex.*",
        "/MemberEpoch|/Assignment.*",
        "Kafka matches expressions after it has answered, Barnabas before",
        always=False,
    ),
    Meant(
        "(all seen|hidden): Share v.*",
        "/Groups/s/GroupEpoch",
        "a new share group's epoch is counted once more when the states of its topics are there",
        always=False,
    ),
    Meant(".*: transaction", ".*/TransactionStartTimeMs", "begun at different times", always=False),
    Meant("InitProducerId .*", "/ProducerId", "ids are given in blocks", always=False),
    Meant("DescribeTransactions v.*", ".*/TransactionStartTimeMs", "begun at different times", always=False),
)

MEANT_WITH_ACL_AUTHORIZER: tuple[Meant, ...] = (
    Meant("make .*", ".*/Configs/.*", "settings of topics are those of Kafka 4"),
    Meant(
        "create acl (no principal|principal without type) v.",
        ".*",
        "AclAuthorizer stumbles over principals without a type",
    ),
    Meant(
        "create acl odd name v.",
        ".*",
        "a name with a slash cannot be that of a znode; here it is kept in a journal",
    ),
    Meant(".*", ".* a/b .*", "the same name afterwards"),
    Meant(
        "delete acl .*",
        "/FilterResults/[02]/.*",
        "AclAuthorizer names an ACL for its first filter only; filters that mean nothing match nothing there",
    ),
)
