"""Differences between the admin APIs of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from typing import Any

from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import (
    answers,
    both,
    closed,
    codes,
    is_id,
    is_path,
    lower,
    only_theirs,
    pair,
    stumbles,
    words_where_none,
)

MUTATED = "mutated "
INVALID_REQUEST, SECURITY_DISABLED = 42, 54


def is_session(value: Any) -> bool:
    """Whether a number is that of a fetch session."""
    return type(value) is int and value > 0


def near(one: Difference) -> bool:
    """Two sizes of the same disk, at most a tenth apart."""
    sizes = (one.theirs, one.ours)
    return all(type(size) is int and size > 0 for size in sizes) and min(sizes) > 0.9 * max(sizes)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        f"{MUTATED}.*",
        ".*/ErrorMessage",
        "words for people where Kafka has none, or an empty text",
        accepts=words_where_none,
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
        f"{MUTATED}DescribeLogDirs v.*", ".*/UsableBytes", "the same disk at another time", accepts=near
    ),
    KnownDifference(
        f"{MUTATED}DescribeAcls v.* 0",
        ".*",
        "Kafka closes the connection; Barnabas says that there is no authorizer",
        accepts=answers(closed, codes(SECURITY_DISABLED)),
    ),
    KnownDifference(
        "metadata v1[23]: neither name nor id",
        ".*/ErrorCode",
        "Kafka stumbles; Barnabas answers INVALID_REQUEST, as older versions do",
        accepts=stumbles(INVALID_REQUEST),
    ),
    KnownDifference(
        "(grow|producers|move).*",
        ".*/(Results|Partitions)/.*/ErrorMessage",
        "words for people where Kafka has none",
        accepts=words_where_none,
    ),
    KnownDifference(
        "coordinator v6: share without a partition",
        ".*/ErrorMessage",
        "words for people where Kafka has an empty text",
        accepts=words_where_none,
    ),
    KnownDifference(
        "versions v.*",
        ".*/MinVersion",
        "versions that Kafka 4 has removed are served: clients of any age connect",
        accepts=lower,
    ),
    KnownDifference(
        "versions v.*",
        ("/ApiKeys/88/MaxVersion", "/ApiKeys/89/MaxVersion"),
        "version 1 of the streams groups' requests is that of Kafka 4.4; its layout is published",
        accepts=pair(0, 1),
    ),
    KnownDifference(
        "versions v.*",
        tuple(f"/ApiKeys/{key}" for key in (55, 64, 80, 81)),
        "there is no quorum of controllers to describe or to change",
        accepts=only_theirs,
    ),
)
