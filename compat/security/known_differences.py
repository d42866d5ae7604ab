"""Differences between refusals of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from typing import Any

from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import (
    answers,
    any_of,
    closed,
    equal,
    only_theirs,
    pair,
    pairs,
    stumbles,
    words_of_an_error,
)

NOT_ALLOWED, UNSUPPORTED_VERSION, INVALID_REQUEST, UNKNOWN_TOPIC_ID = 29, 35, 42, 100
ZERO = "(type|pattern|operation|permission) 0 v."
CLOSES = "Kafka closes the connection; Barnabas says which entry is wrong"
AFTERWARDS = "Kafka matches expressions after it has answered, Barnabas before"
_WRONG = {"ErrorCode": INVALID_REQUEST, "ErrorMessage": "words"}
_BAD_FILTER, _GOOD_FILTER = (
    _WRONG | {"MatchingAcls": []},
    {"ErrorCode": 0, "ErrorMessage": None, "MatchingAcls": []},
)


def _all_of(*topics: str) -> list[dict[str, Any]]:
    """The one partition of each topic, as a heartbeat assigns them."""
    return [{"TopicId": f"id of {topic}", "Partitions": [0]} for topic in topics]


FREE = _all_of("free")
SEEN, SEEN_OR_HIDDEN = _all_of("open-topic"), _all_of("hidden-topic", "open-topic")


def other_id_of_zero(difference: Difference) -> bool:
    """Kafka fails the whole request; we answer the partition, and give nothing of it."""
    theirs, ours = difference.whole
    nothing = {"AcquisitionLockTimeoutMs": 0, "Responses": [], "NodeEndpoints": []}
    if theirs != {"ThrottleTimeMs": 0, "ErrorCode": -1, "ErrorMessage": None} | nothing:
        return False
    partitions = [part for topic in ours["Responses"] for part in topic["Partitions"].values()]
    return (
        [difference["ErrorCode"] for difference in partitions] == [UNKNOWN_TOPIC_ID]
        and not partitions[0]["Records"]
        and not partitions[0]["AcquiredRecords"]
        and (ours["ThrottleTimeMs"], ours["ErrorCode"], ours["NodeEndpoints"]) == (0, 0, [])
        and ours["AcquisitionLockTimeoutMs"] == 30_000
    )


_ALWAYS: tuple[KnownDifference, ...] = (
    KnownDifference(
        ".*",
        ".*/ErrorMessage",
        "words for people where Kafka has none, or an empty text",
        accepts=words_of_an_error,
    ),
    KnownDifference(
        f"create acl {ZERO}",
        ".*",
        f"create: {CLOSES}",
        accepts=answers(closed, equal({"ThrottleTimeMs": 0, "Results": [_WRONG]})),
    ),
    KnownDifference(
        f"describe acl {ZERO}",
        ".*",
        f"describe: {CLOSES}",
        accepts=answers(closed, equal({"ThrottleTimeMs": 0, **_WRONG, "Resources": []})),
    ),
    KnownDifference(
        f"delete acl {ZERO}",
        ".*",
        f"delete: {CLOSES}",
        accepts=answers(
            closed,
            equal({"ThrottleTimeMs": 0, "FilterResults": [_BAD_FILTER, _GOOD_FILTER, _BAD_FILTER]}),
        ),
    ),
    KnownDifference(
        ("create acl (type|pattern|operation|permission) any v.", "create acl pattern match v."),
        "/Results/./ErrorCode",
        "Kafka stumbles over what is no single resource or operation",
        accepts=stumbles(INVALID_REQUEST),
    ),
)

_WITH_KAFKA_4: tuple[KnownDifference, ...] = (
    KnownDifference(
        "ShareFetch v.*: no READ on TOPIC nothing",
        ("/ErrorCode", "/AcquisitionLockTimeoutMs", "/Responses"),
        "Kafka stumbles over a topic id of zero",
        accepts=other_id_of_zero,
    ),
    KnownDifference(
        "AlterShareGroupOffsets v.*: no READ on TOPIC no-read",
        "/Responses/no-read/TopicId",
        "Kafka tells the id of a topic to who may not read it, if there is the topic",
        accepts=pair("id of no-read", "no id"),
    ),
    KnownDifference(
        "(all seen|hidden): regex.*", "/MemberEpoch", f"epochs: {AFTERWARDS}", accepts=pair(1, 2)
    ),
    KnownDifference(
        "all seen: regex", "/Assignment/TopicPartitions", AFTERWARDS, accepts=pair([], SEEN_OR_HIDDEN)
    ),
    KnownDifference(
        "hidden: regex", "/Assignment/TopicPartitions", f"what is seen: {AFTERWARDS}", accepts=pair([], SEEN)
    ),
    KnownDifference(
        "all seen: regex beat",
        "/Assignment",
        f"and says it in the next answer: {AFTERWARDS}",
        accepts=pair({"TopicPartitions": SEEN_OR_HIDDEN}, None),
        by_chance="the next heartbeat may come before Kafka has matched",
    ),
    KnownDifference(
        "hidden: regex beat",
        "/Assignment",
        f"and says what is seen in the next answer: {AFTERWARDS}",
        accepts=pair({"TopicPartitions": SEEN}, None),
        by_chance="the next heartbeat may come before Kafka has matched",
    ),
    KnownDifference(
        ("join s", "AlterShareGroupOffsets v0: join"),
        "/Assignment/TopicPartitions",
        "the first answer names what the second heartbeat assigns, so that a member begins five seconds sooner",
        accepts=any_of(pair([], SEEN_OR_HIDDEN), pair([], FREE)),
    ),
)

_WITH_KAFKA_3: tuple[KnownDifference, ...] = (
    KnownDifference(
        "(create|creates|make) .*",
        tuple(
            rf".*/Configs/message\.{name}"
            for name in (r"downconversion\.enable", r"format\.version", r"timestamp\.difference\.max\.ms")
        ),
        "settings of topics that Kafka 4 has no longer",
        accepts=only_theirs,
    ),
    KnownDifference(
        "DescribeConfigs v0: .*",
        ".*/IsDefault",
        "Kafka 3.9 leaves the field of v0 as it is: nothing is a default",
        accepts=pair(False, True),
    ),
)

_WITH_KAFKA_3_ON_KRAFT: tuple[KnownDifference, ...] = (
    KnownDifference(
        "OffsetFetch v0: .*",
        ".*/ErrorCode",
        "v0 reads offsets from ZooKeeper, and a Kafka with KRaft has none: it does not serve what it advertises",
        accepts=pair(UNSUPPORTED_VERSION, NOT_ALLOWED),
    ),
)


def has_its_id(difference: Difference) -> bool:
    """Kafka gives no id, and we give that of the topic."""
    return difference.theirs == "no id" and difference.ours == f"id of {difference.path.split('/')[2]}"


def is_of_odd_name(difference: Difference) -> bool:
    """We have the ACL with the name that Kafka has refused."""
    return difference.theirs == "nothing" and difference.ours["ResourceName"] == "a/b cü"


def matches_again(difference: Difference) -> bool:
    """A later filter matches what the first one has matched, or means nothing and is refused."""
    if difference.path.endswith(("ErrorCode", "ErrorMessage")):
        codes = tuple(holder["ErrorCode"] for holder in difference.holders())
        is_refusal = (difference.theirs, difference.ours) in ((0, INVALID_REQUEST), (None, "words"))
        return is_refusal and codes == (0, INVALID_REQUEST)
    first = difference.whole[1]["FilterResults"][0 if difference.path.split("/")[2] != "0" else 2][
        "MatchingAcls"
    ]
    return (
        difference.theirs == []
        and isinstance(difference.ours, dict)
        and bool(difference.ours)
        and difference.ours == first
    )


_WITH_ACL_AUTHORIZER: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("create no-describe-configs", "creates .*"),
        "/Topics/[^/]*/TopicId",
        "Kafka 4 gives the id too where settings may not be described, and where a topic is only checked",
        accepts=has_its_id,
    ),
    KnownDifference(
        ("create nothing", "creates .*", "CreateTopics v7: no (CREATE|DESCRIBE_CONFIGS) on TOPIC nothing"),
        ".*/TopicConfigErrorCode",
        "Kafka 4 says it of topics that are made, not of those that are refused",
        accepts=pair(NOT_ALLOWED, "nothing"),
    ),
    KnownDifference(
        "DeleteTopics v6: by id nothing",
        "/Responses/None/ErrorCode",
        "neither a name nor an id: AclAuthorizer is asked for no name at all, and refuses that",
        accepts=pair(NOT_ALLOWED, INVALID_REQUEST),
    ),
    KnownDifference(
        ("create acl no principal v.", "create acl principal without type v."),
        "/Results/0/ErrorCode",
        "AclAuthorizer stumbles over principals without a type",
        accepts=pair(-1, INVALID_REQUEST),
    ),
    KnownDifference(
        "create acl odd name v.",
        ("/Results/0/ErrorCode", "/Results/0/ErrorMessage"),
        "a name with a slash cannot be that of a znode; here it is kept in a journal",
        accepts=pairs((INVALID_REQUEST, 0), ("words", "")),
    ),
    KnownDifference(".*", ".* a/b cü .*", "the same name afterwards", accepts=is_of_odd_name),
    KnownDifference(
        "delete acl .*",
        tuple(f"/FilterResults/[02]/{name}" for name in ("MatchingAcls", "ErrorCode", "ErrorMessage")),
        "AclAuthorizer names an ACL for its first filter only; filters that mean nothing match nothing there",
        accepts=matches_again,
    ),
)


def of(*, of_kafka_3: bool, mode: str) -> tuple[KnownDifference, ...]:
    """Return what is known of a comparison with a Kafka before 4 or of 4, with KRaft or on ZooKeeper."""
    if not of_kafka_3:
        return (*_ALWAYS, *_WITH_KAFKA_4)
    return (*_ALWAYS, *_WITH_KAFKA_3, *(_WITH_KAFKA_3_ON_KRAFT if mode == "kraft" else _WITH_ACL_AUTHORIZER))
