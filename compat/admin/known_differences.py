"""Differences between the admin APIs of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from typing import Any

from compat.admin.mutated import TOPIC
from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import (
    all_of,
    answers,
    both,
    closed,
    equal,
    is_id,
    is_path,
    lower,
    only_theirs,
    pair,
    stumbles,
    words_of_an_error,
)

MUTATED = "mutated "
UNKNOWN, INVALID_TOPIC, INVALID_REQUEST, SECURITY_DISABLED = 3, 17, 42, 54
NO_AUTHORIZER = {
    "ThrottleTimeMs": 0,
    "ErrorCode": SECURITY_DISABLED,
    "ErrorMessage": "words",
    "Resources": [],
}
STUMBLES = "Kafka stumbles over it, and answers UNKNOWN_SERVER_ERROR"
QUORUM_FEATURES = ("kraft", "metadata", r"eligible\.leader\.replicas")
TEXT = "words for people where Kafka has none"
FIRST_VERSIONS = {
    1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1, 38: 1, 39: 1, 40: 1,
    41: 1, 76: 1, 77: 1, 78: 1, 79: 1,
}  # fmt: skip
"""The first version that Kafka 4.4 serves of each API that has had older ones (of share groups: for early access)."""
OPERATIONS, NO_OPERATIONS = 3576, -(2**31)


def is_session(value: Any) -> bool:
    """Return whether a number is that of a fetch session."""
    return type(value) is int and value > 0


def since_the_first(difference: Difference) -> bool:
    """Return whether Kafka serves an API from a later version on, and we from version 0."""
    return (difference.theirs, difference.ours) == (FIRST_VERSIONS[int(difference.path.split("/")[2])], 0)


def near(difference: Difference) -> bool:
    """Return whether two sizes of the same disk differ by at most a tenth."""
    sizes = (difference.theirs, difference.ours)
    return all(type(size) is int and size > 0 for size in sizes) and min(sizes) > 0.9 * max(sizes)


def answered_once(difference: Difference) -> bool:
    """Return whether Kafka answers a repeated entry twice with the same result, and we answer it once."""
    theirs, ours = difference.theirs, difference.ours
    return (
        isinstance(theirs, list)
        and len(theirs) == 2
        and theirs[0] == theirs[1]
        and isinstance(ours, dict)
        and list(ours.values()) == theirs[:1]
    )


def of_no_share_group(difference: Difference) -> bool:
    """Return whether Kafka fails a share group, and we return no offsets for its partitions."""
    theirs, ours = (answer["Groups"] for answer in difference.whole)
    failed = {"Topics": [], "ErrorCode": -1, "ErrorMessage": "words"}
    if (
        any(group != failed | {"GroupId": name} for name, group in theirs.items())
        or theirs.keys() != ours.keys()
    ):
        return False
    described = {"ErrorCode": 0, "ErrorMessage": None}
    nothing = {"PartitionIndex": 0, "StartOffset": -1, "LeaderEpoch": 0} | described
    topic = {"TopicName": TOPIC, "TopicId": f"id of {TOPIC}"}
    return all(
        group
        in (
            described | {"GroupId": name, "Topics": {TOPIC: topic | {"Partitions": partitions}}}
            for partitions in ([], {"0": nothing}, {"0": nothing | {"Lag": -1}})
        )
        for name, group in ours.items()
    )


def of_no_partition(difference: Difference) -> bool:
    """Return whether Kafka fails the whole request, and we fail only the invalid partition."""
    theirs, ours = difference.whole
    if theirs != {"ThrottleTimeMs": 0, "ErrorCode": -1, "ErrorMessage": "words", "Responses": []}:
        return False
    (index,) = ours["Responses"][TOPIC]["Partitions"]
    part = {"PartitionIndex": int(index), "ErrorCode": UNKNOWN, "ErrorMessage": "words"}
    topic = {"TopicName": TOPIC, "TopicId": f"id of {TOPIC}", "Partitions": {index: part}}
    return bool(
        int(index) < 0
        and ours == {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": None, "Responses": {TOPIC: topic}}
    )


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        tuple(
            f"{MUTATED}{api} v.*"
            for api in ("Produce", "CreatePartitions", "DescribeConfigs", "AlterPartitionReassignments")
        ),
        ".*/ErrorMessage",
        TEXT,
        accepts=words_of_an_error,
    ),
    KnownDifference(
        f"{MUTATED}AlterPartitionReassignments v. Topics none",
        "/ErrorMessage",
        "Kafka does not look at no topics, and leaves the text as it is by default",
        accepts=pair("", None),
    ),
    KnownDifference(
        tuple(
            f"{MUTATED}{api} v. {field} twice"
            for api, field in (
                ("DescribeGroups", "Groups"),
                ("DescribeConfigs", "Resources"),
                ("ConsumerGroupDescribe", "GroupIds"),
                ("ShareGroupDescribe", "GroupIds"),
                ("StreamsGroupDescribe", "GroupIds"),
            )
        ),
        ("/Groups", "/Results"),
        "what is asked for twice is answered once: an answer is not larger than what there is",
        accepts=answered_once,
    ),
    KnownDifference(
        f"{MUTATED}InitProducerId v.*", "/ProducerId", "ids are given in blocks", accepts=both(is_id)
    ),
    KnownDifference(
        f"{MUTATED}Fetch v.* SessionEpoch 0",
        "/SessionId",
        "ids of sessions are random",
        accepts=both(is_session),
    ),
    KnownDifference(
        (f"{MUTATED}DescribeLogDirs v.*", "log dirs v.*"),
        ".*/LogDir",
        "its own directory",
        accepts=both(is_path),
    ),
    KnownDifference(
        f"({MUTATED}DescribeLogDirs|log dirs) v.*",
        ".*/UsableBytes",
        "the same disk at another time",
        accepts=near,
        by_chance="what is free may be the same at both times",
    ),
    KnownDifference(
        f"{MUTATED}DescribeAcls v.* 0",
        ".*",
        "Kafka closes the connection; Barnabas says that there is no authorizer",
        accepts=answers(closed, equal(NO_AUTHORIZER)),
    ),
    KnownDifference(
        f"{MUTATED}IncrementalAlterConfigs v. Resources.Configs.ConfigOperation .*",
        ("/Responses/2 mutated/ErrorCode", "/Responses/2 mutated/ErrorMessage"),
        f"an operation that does not exist: {STUMBLES}",
        accepts=stumbles(INVALID_REQUEST),
    ),
    KnownDifference(
        ("metadata v1[23]: neither name nor id", f"{MUTATED}Metadata v1[23] Topics.Name null"),
        ("/ErrorCode", "/Topics//ErrorCode"),
        f"neither a name nor an id: {STUMBLES}; Barnabas answers INVALID_REQUEST, as older versions do",
        accepts=stumbles(INVALID_REQUEST),
    ),
    KnownDifference(
        ("pages: bad names", f"{MUTATED}DescribeTopicPartitions v0 Topics.Name empty"),
        ("/Topics//ErrorCode", "/Topics/a b/ErrorCode"),
        f"a name that no topic can have: {STUMBLES}",
        accepts=stumbles(INVALID_TOPIC),
    ),
    KnownDifference(
        f"{MUTATED}DescribeTopicPartitions v0 Topics.Name a bad name",
        "/Topics/a b/TopicAuthorizedOperations",
        "Kafka tells the operations on a topic that cannot be",
        accepts=pair(OPERATIONS, NO_OPERATIONS),
    ),
    KnownDifference(
        (
            f"{MUTATED}DescribeShareGroupOffsets v. Groups.GroupId empty",
            f"{MUTATED}DescribeShareGroupOffsets v. Groups.Topics.Partitions none",
        ),
        tuple(f"/Groups/.*/{field}" for field in ("Topics", "ErrorCode", "ErrorMessage")),
        f"a group without a name, or no partitions: {STUMBLES}",
        accepts=of_no_share_group,
    ),
    KnownDifference(
        f"{MUTATED}AlterShareGroupOffsets v0 Topics.Partitions.PartitionIndex -.",
        ("/ErrorCode", "/ErrorMessage", "/Responses"),
        f"a partition that there cannot be: {STUMBLES}",
        accepts=of_no_partition,
    ),
    KnownDifference(
        "grow.*",
        r"/Results/(nowhere|a b|)/ErrorMessage",
        f"growth: {TEXT}",
        accepts=words_of_an_error,
    ),
    KnownDifference(
        ("producers: (unknown partition|negative)", "move.*"),
        ("/Topics/filled/Partitions/.*/ErrorMessage", "/Responses/filled/Partitions/.*/ErrorMessage"),
        f"partitions: {TEXT}",
        accepts=words_of_an_error,
    ),
    KnownDifference(
        "coordinator v6: share without a partition",
        "/Coordinators/share without a partition/ErrorMessage",
        "words for people where Kafka has an empty text",
        accepts=all_of(pair("", "words"), words_of_an_error),
    ),
    KnownDifference(
        "versions v.*",
        tuple(f"/ApiKeys/{key}/MinVersion" for key in FIRST_VERSIONS),
        "versions that Kafka 4 has removed are served: clients of any age connect",
        accepts=since_the_first,
    ),
    KnownDifference(
        "versions v.*",
        tuple(f"/ApiKeys/{key}" for key in (55, 64, 80, 81, 94)),
        "there is no quorum of controllers to describe or to change",
        accepts=only_theirs,
    ),
    KnownDifference(
        "versions v3",
        "/SupportedFeatures",
        "Kafka tells clients of v3 of no other feature: those of a quorum of controllers are decision 143",
        accepts=only_theirs,
    ),
    KnownDifference(
        "versions v[45]",
        tuple(rf"/SupportedFeatures/{name}\.version" for name in QUORUM_FEATURES),
        "features of a quorum of controllers and its records: decision 143",
        accepts=only_theirs,
    ),
    KnownDifference(
        "versions v[345]",
        tuple(rf"/FinalizedFeatures/{name}\.version" for name in QUORUM_FEATURES[1:]),
        "finalized features of a quorum of controllers and its records: decision 143",
        accepts=only_theirs,
    ),
    KnownDifference(
        "versions v[345]",
        "/FinalizedFeaturesEpoch",
        "Kafka counts the records of its quorum: decision 143",
        accepts=lower,
    ),
)
