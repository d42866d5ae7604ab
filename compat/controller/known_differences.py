"""Differences between a controller of Apache Kafka's and one of ours that are known, each with its reason."""

from __future__ import annotations

from typing import Any

from barnabas.records.batch import iter_batches
from compat.configs.known_differences import other_ports
from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import (
    all_of,
    answers,
    any_of,
    both,
    closed,
    error_codes,
    is_id,
    is_path,
    pair,
    pairs,
    stumbles,
    words_of_an_error,
)

UNKNOWN_SERVER_ERROR, UNSUPPORTED_VERSION, INVALID_CONFIG, INVALID_REQUEST = -1, 35, 40, 42
INVALID_PRINCIPAL_TYPE, UNACCEPTABLE_CREDENTIAL, INVALID_REGISTRATION = 67, 93, 119
TEXT = "words for people where Kafka has none"
RESIGNS = "Kafka's controller fails and resigns; ours says what is wrong"
CLOSES = "Kafka cannot read what is undefined in the request, and closes the connection; ours answers INVALID_REQUEST"
LEADER_CHANGE = "LeaderChange"
CLOSE_MS = 60_000
TOKENS = ("token", ".* CreateDelegationToken .*", "edge token .*")
TOKEN_TIMES = (*TOKENS, ".* (Renew|Expire)DelegationToken .*")


def is_token_id(value: Any) -> bool:
    """Return whether a text is the random id of a token."""
    return isinstance(value, str) and len(value) == 22


def is_hmac(value: Any) -> bool:
    """Return whether bytes are an HMAC-SHA-512."""
    return isinstance(value, bytes) and len(value) == 64


def is_address(value: Any) -> bool:
    """Return whether a text is an address on this machine."""
    return isinstance(value, str) and value.startswith("127.0.0.1:")


def close(difference: Difference) -> bool:
    """Return whether two times are close enough to be those of the same request."""
    return both(is_id)(difference) and abs(difference.theirs - difference.ours) < CLOSE_MS


def batches_of(data: Any) -> list[tuple[int, int]]:
    """Return (base offset, record count) of each batch."""
    return [(header.base_offset, header.records_count) for _, header in iter_batches(data)]


def same_batches(difference: Difference) -> bool:
    """Return whether two pieces of logs have batches with the same offsets; ids and times in them may differ."""
    return batches_of(difference.theirs) == batches_of(difference.ours) != []


def only_led(difference: Difference) -> bool:
    """Return whether the records differ only in additional leader changes of Kafka's, as after a resignation."""
    theirs, ours = difference.whole
    rest = [record for record in theirs if record["Type"] != LEADER_CHANGE]
    return len(rest) < len(theirs) and rest == ours


def in_another_order(difference: Difference) -> bool:
    """Return whether the records are the same in another order."""
    theirs, ours = (sorted(map(repr, records)) for records in difference.whole)
    return len(theirs) > 1 and theirs == ours


def twice(difference: Difference) -> bool:
    """Return whether Kafka has the same change of a partition twice, and ours once."""
    theirs, ours = difference.whole
    return (
        bool(ours) and theirs == [*ours, *ours] and {record["Type"] for record in ours} == {"PartitionChange"}
    )


def differ_in_number(difference: Difference) -> bool:
    """Return whether the numbers of records in batches differ."""
    theirs, ours = difference.whole
    return sum(theirs) != sum(ours) and all(type(count) is int for count in (*theirs, *ours))


def without_a_change(difference: Difference) -> bool:
    """Return whether Kafka has a change record of a registration without changes."""
    theirs, ours = difference.whole
    return theirs[:-1] == ours and set(theirs[-1]) == {"Type", "brokerId", "brokerEpoch", "version"}


def refused(code: int) -> Any:
    """Return a predicate: whether a response has this error code and no other."""
    return lambda answer: set(error_codes(answer)) - {0} == {code}


def is_unread(answer: Any) -> bool:
    """Return whether an envelope was refused since the request within cannot be read."""
    return bool(answer == {"envelope": {"ResponseData": None, "ErrorCode": UNSUPPORTED_VERSION}})


def failed(answer: Any) -> bool:
    """Return whether an answer has UNKNOWN_SERVER_ERROR and nothing else."""
    return set(error_codes(answer)) == {UNKNOWN_SERVER_ERROR}


def refuses_a_piece(answer: Any) -> bool:
    """Return whether an answer to FetchSnapshot refuses its only partition, with no records."""
    (topic,) = answer["Topics"].values()
    (partition,) = topic["Partitions"]
    is_whole = (answer["ErrorCode"], answer["ThrottleTimeMs"]) == (0, 0)
    return is_whole and partition["ErrorCode"] in (3, 74, 75, 98, 99) and partition["UnalignedRecords"] == b""


def failed_partition(difference: Difference) -> bool:
    """Return whether Kafka's answer to a Fetch has UNKNOWN_SERVER_ERROR where ours has INVALID_REQUEST."""
    return (difference.theirs, difference.ours) == (UNKNOWN_SERVER_ERROR, INVALID_REQUEST)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        TOKEN_TIMES,
        (".*/ExpiryTimestampMs", ".*/MaxTimestampMs"),
        "the time of the request",
        accepts=close,
    ),
    KnownDifference(
        (*(f"{label}: records" for label in TOKENS), ".* (Renew|Expire)DelegationToken .*: records"),
        ("/0/maxTimestamp", "/0/expirationTimestamp"),
        "the time of the request, in its record",
        accepts=close,
    ),
    KnownDifference(TOKENS, "/TokenId", "ids of tokens are random", accepts=both(is_token_id)),
    KnownDifference(TOKENS, "/Hmac", "the HMAC of a random id", accepts=both(is_hmac)),
    KnownDifference(
        (
            ".* ApiVersions .*",
            ".*broker .*",
            ".* BrokerRegistration .*",
            "before mutated UnregisterBroker .*",
        ),
        ("/FinalizedFeaturesEpoch", "/BrokerEpoch"),
        "an offset of the log: Kafka's has the records of more leaders",
        accepts=both(lambda value: type(value) is int and value > 0),
        by_chance="the logs are as long while no leader has resigned",
    ),
    KnownDifference(
        ".*: records",
        ".*",
        "records of the leaders that follow one that has failed",
        accepts=only_led,
    ),
    KnownDifference(
        "edge grow several: records",
        ".*",
        "Kafka has these in the order of a hash table",
        accepts=in_another_order,
        by_chance="the order may be the same",
    ),
    KnownDifference(
        (
            "mutated AlterPartitionReassignments .* twice: records",
            "mutated AssignReplicasToDirs .* twice: records",
        ),
        "",
        "a partition that is named twice is changed twice alike at Kafka: each change is of what was before the request",
        accepts=twice,
    ),
    KnownDifference(
        "edge heartbeat of all dirs lost: records",
        "",
        "a change of a registration that changes nothing, since no dirs are left to tell",
        accepts=without_a_change,
    ),
    KnownDifference(
        "(mutated|edge|denied) .*",
        ".*/ErrorMessage",
        TEXT,
        accepts=words_of_an_error,
    ),
    KnownDifference(
        (
            "mutated AlterPartition v. Topics.Partitions.LeaderRecoveryState .*",
            "mutated BrokerRegistration v. Listeners.(SecurityProtocol .*|Host empty|Port 0)",
            "mutated ControllerRegistration v0 Listeners.(SecurityProtocol .*|Host empty|Port 0)",
        ),
        ("/ErrorCode", "/Topics"),
        RESIGNS,
        accepts=any_of(
            answers(failed, refused(INVALID_REGISTRATION)), answers(failed, refused(INVALID_REQUEST))
        ),
    ),
    KnownDifference(
        "mutated (CreateAcls|DescribeAcls|DeleteAcls) .* 0",
        (".*"),
        CLOSES,
        accepts=any_of(
            answers(closed, refused(INVALID_REQUEST)), answers(is_unread, refused(INVALID_REQUEST))
        ),
    ),
    KnownDifference(
        ("mutated CreateAcls .* 1", "edge acls matching"),
        "/Results/0/ErrorCode",
        "an ACL of any type, pattern, operation or permission: Kafka answers UNKNOWN_SERVER_ERROR",
        accepts=stumbles(INVALID_REQUEST),
    ),
    KnownDifference(
        "mutated IncrementalAlterConfigs list .*v1 Resources.Configs.Value null",
        "/Responses/.*/ErrorCode",
        f"null that is to be appended: {RESIGNS}",
        accepts=stumbles(INVALID_REQUEST),
    ),
    KnownDifference(
        "mutated AlterUserScramCredentials .* Upsertions.SaltedPassword empty",
        "/Results/0/ErrorCode",
        "an empty password: Kafka answers UNKNOWN_SERVER_ERROR",
        accepts=stumbles(UNACCEPTABLE_CREDENTIAL),
    ),
    KnownDifference(
        "mutated CreateDelegationToken .*v3 OwnerPrincipalType (null|empty)",
        ".*",
        "an owner without a type: Kafka fails or makes a token that no one can use; ours answers INVALID_PRINCIPAL_TYPE, "
        "or that such a client may not ask for tokens",
        accepts=lambda difference: (
            difference.whole[1]["ErrorCode"] in (64, INVALID_PRINCIPAL_TYPE)
            and difference.whole[0]["ErrorCode"] in (0, UNKNOWN_SERVER_ERROR)
        ),
    ),
    KnownDifference(
        "mutated CreateDelegationToken .*v3 OwnerPrincipalType empty: records",
        "",
        "no token of an owner without a type",
        accepts=lambda difference: (
            difference.whole[1] == [] and [record["owner"][0] for record in difference.whole[0]] == [":"]
        ),
    ),
    KnownDifference(
        "mutated AlterClientQuotas .* Entries twice: records",
        "",
        "Kafka answers that an entity named twice keeps its quotas, and alters them by the first entry",
        accepts=lambda difference: (
            difference.whole[1] == []
            and [record["Type"] for record in difference.whole[0]] == ["ClientQuota"]
        ),
    ),
    KnownDifference(
        (
            "edge heartbeat of all dirs lost: batches",
            "mutated (AlterPartitionReassignments|AssignReplicasToDirs|AlterClientQuotas) .* twice: batches",
            "mutated CreateDelegationToken .*v3 OwnerPrincipalType empty: batches",
        ),
        ".*",
        "batches of records that are not the same",
        accepts=differ_in_number,
    ),
    KnownDifference(
        "edge mutations .*",
        "/ThrottleTimeMs",
        "the time that has passed since the last change",
        accepts=all_of(close, both(lambda value: value > 1000)),
    ),
    KnownDifference(
        "mutated FetchSnapshot .*",
        ".*",
        "Kafka cannot send an error of a snapshot: its answer lacks the records, and it fails",
        accepts=answers(failed, refuses_a_piece),
    ),
    KnownDifference(
        "mutated Fetch v1. .*",
        "/Responses/0/Partitions/0/Records",
        "times and ids in the first records",
        accepts=same_batches,
    ),
    KnownDifference(
        "mutated Fetch v1. (ReplicaId 1|ReplicaState.ReplicaId 1|MaxBytes -.)",
        "/Responses/0/Partitions/0/ErrorCode",
        "a fetch in the leader's own name, or of less than no bytes: Kafka answers UNKNOWN_SERVER_ERROR",
        accepts=failed_partition,
    ),
    KnownDifference(
        "edge alter (loggers|no logger|no level).*",
        "/Responses/8 1/ErrorCode",
        "levels of loggers are none of a controller's settings here",
        accepts=pair(INVALID_CONFIG, INVALID_REQUEST),
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        (
            r".*/controller\.quorum\.bootstrap\.servers/Value",
            r".*/controller\.quorum\.bootstrap\.servers/Synonyms/0/Value",
        ),
        "its own address",
        accepts=both(is_address),
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        (".*/listeners/Value", ".*/listeners/Synonyms/0/Value"),
        "its own ports",
        accepts=other_ports,
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        (r".*/log\.dirs/Value", r".*/log\.dirs/Synonyms/log\.dirs/Value"),
        "its own directory",
        accepts=both(is_path),
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        ".*/listeners/Synonyms/1/Value",
        "who is told nothing listens at loopback alone: decision 30",
        accepts=pair("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092"),
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        (".*/listeners/ReadOnly", r".*/listener\.security\.protocol\.map/ReadOnly"),
        "listeners are opened at the start only",
        accepts=pair(False, True),
    ),
    KnownDifference(
        "mutated DescribeConfigs node v. .*",
        tuple(
            rf".*/super\.users/{field}"
            for field in ("Value", "IsSensitive", "ConfigType", r"Synonyms/super\.users/Value")
        ),
        "Kafka does not know the settings of its authorizer, and hides them",
        accepts=any_of(
            pairs((True, False), (0, 2)),
            all_of(
                lambda difference: difference.theirs is None,
                both(lambda value: value in (None, "User:ANONYMOUS;User:admin")),
            ),
        ),
    ),
)
