"""Known differences between a broker of Kafka's and one of ours in a quorum, each with its reason."""

from __future__ import annotations

import re

from compat.admin.known_differences import FIRST_VERSIONS, since_the_first
from compat.configs.known_differences import other_ports
from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import (
    all_of,
    answers,
    any_of,
    both,
    closed,
    codes,
    is_id,
    is_path,
    pair,
    pairs,
    silent,
    stumbles,
    words_of_an_error,
)

INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED = 42, 31
OWN = r"/Results/4 OWN/Configs/"
AUTHORIZERS = (
    "a setting of the authorizer, which Kafka's broker does not know, and shows as if it were a password"
)
FIRST_WHO = (
    "a client without the right to change settings is told so first; Kafka's broker begins with the settings"
)


def of_its_number(difference: Difference) -> bool:
    """Return whether both are equal, except for the broker's id."""
    return re.sub(r"4", "5", str(difference.theirs)) == str(difference.ours)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("metadata.*", "cluster.*", "id of half", "topic of changes is there", "auto v.*"),
        "/ControllerId",
        "in a quorum any live broker is named: Kafka's names one at random",
        accepts=both(is_id),
        by_chance="Kafka's may name ours each time",
    ),
    KnownDifference(
        "versions v.*",
        tuple(f"/ApiKeys/{key}/MinVersion" for key in FIRST_VERSIONS),
        "versions that Kafka 4 has removed are served: clients of any age connect",
        accepts=since_the_first,
        by_chance="those that are forwarded begin with the controller's",
    ),
    KnownDifference(
        "versions v[34]",
        r"/SupportedFeatures/metadata\.version/MaxVersion",
        "ours knows the records of Kafka 4.4, too",
        accepts=pair(30, 33),
    ),
    KnownDifference(
        "versions v.*",
        ("/ApiKeys/88/MaxVersion", "/ApiKeys/89/MaxVersion"),
        "version 1 of the streams groups' requests is that of Kafka 4.4; its layout is published",
        accepts=pair(0, 1),
    ),
    KnownDifference(
        ("describe v.*", "after change 4 'OWN'.*"),
        tuple(
            OWN + name
            for name in (
                r"(node\.id|broker\.id|broker\.rack)/Value",
                r"(node\.id|broker\.id|broker\.rack)/Synonyms/.*Value",
            )
        ),
        "its own number and rack",
        accepts=of_its_number,
    ),
    KnownDifference(
        "describe v.*",
        (OWN + r"log\.dirs/Value", OWN + r"log\.dirs/Synonyms/log\.dirs/Value"),
        "its own directories",
        accepts=both(is_path),
    ),
    KnownDifference(
        "describe v.*",
        tuple(OWN + rf"(advertised\.)?listeners/{part}" for part in ("Value", "Synonyms/.*Value")),
        "its own ports",
        accepts=other_ports,
    ),
    KnownDifference(
        "describe v.*",
        OWN + r"listeners/Synonyms/1/Value",
        "without an address a broker listens at loopback alone: decision 30",
        accepts=pair("PLAINTEXT://:9092", "PLAINTEXT://localhost:9092"),
    ),
    KnownDifference(
        "describe v.*",
        (OWN + r"listeners/ReadOnly", OWN + r"listener\.security\.protocol\.map/ReadOnly"),
        "listeners are opened at the start only",
        accepts=pair(False, True),
    ),
    KnownDifference(
        "describe v.*",
        tuple(
            OWN + rf"super\.users/{part}"
            for part in ("Value", "IsSensitive", "Synonyms/.*/Value", "ConfigType")
        ),
        AUTHORIZERS,
        accepts=pairs((None, "User:admin;User:ANONYMOUS"), (True, False), (0, 2)),
    ),
    KnownDifference(
        ("describe v. 2 'nowhere'.*", "after change 2 'nowhere'.*", "auto: .*: its settings"),
        "/Results/2 .*/ErrorMessage",
        "words for people where Kafka has an empty text",
        accepts=all_of(pair("", "words"), words_of_an_error),
    ),
    KnownDifference(
        "acls v. [45] .*",
        ".*",
        "Kafka closes the connection over a type or pattern that there is not; ours answers",
        accepts=any_of(
            answers(closed, codes(INVALID_REQUEST)), answers(closed, codes(CLUSTER_AUTHORIZATION_FAILED))
        ),
    ),
    KnownDifference(
        "mutations: create v.*",
        "/ThrottleTimeMs",
        "asked one after the other, of one quota",
        accepts=both(lambda value: type(value) is int and value > 0),
    ),
    KnownDifference(
        ("quotas.*", "users .*", "change.*"),
        ".*/ErrorMessage",
        "words for people where Kafka has none",
        accepts=words_of_an_error,
    ),
    KnownDifference(
        "users all alice",
        ".*",
        "Kafka never answers a client that may not see all users; ours refuses",
        accepts=answers(silent, codes(CLUSTER_AUTHORIZATION_FAILED)),
    ),
    KnownDifference(
        "quorum v. __cluster_metadata .*",
        ".*/(LastFetchTimestamp|LastCaughtUpTimestamp)",
        "asked one after the other",
        accepts=both(is_id),
        by_chance="both may be asked within a millisecond",
    ),
    KnownDifference("log dirs v.*", ".*/LogDir", "its own directory", accepts=both(is_path)),
    KnownDifference(
        "change.*(9|-1) 1",
        "/Responses/2 SIDE-t/ErrorCode",
        "an operation that does not exist: Kafka stumbles over it, and answers UNKNOWN_SERVER_ERROR",
        accepts=any_of(stumbles(INVALID_REQUEST), pair(29, 42)),
    ),
    KnownDifference(
        ("change by alice 4 .*", "change together mixed .* alice"),
        ("/Responses/4 .*/ErrorCode",),
        FIRST_WHO,
        accepts=pairs((42, 31), (40, 31)),
    ),
    KnownDifference(
        ("auto v.*", "topic of changes is there"),
        "/Topics/SIDE-.*/Partitions/0/(LeaderId|ReplicaNodes/0|IsrNodes/0)",
        "the controller places a topic with one replica at random",
        accepts=both(is_id),
        by_chance="at random",
    ),
    KnownDifference(
        "kafka-broker-api-versions .*",
        "",
        "the addresses of the brokers: that which is asked stands for itself",
        accepts=lambda difference: len(difference.theirs) == len(difference.ours) == 2,
    ),
)
