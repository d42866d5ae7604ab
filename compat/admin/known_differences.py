"""Differences between the admin APIs of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

MUTATED = "mutated "
KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        f"{MUTATED}.*",
        ".*/ErrorMessage",
        "words for people where Kafka has none, or an empty text",
        theirs=(None, ""),
    ),
    KnownDifference(f"{MUTATED}InitProducerId v.*", "/ProducerId", "ids are given in blocks", always=False),
    KnownDifference(
        f"{MUTATED}InitProducerId v0 as it should be",
        ".*",
        "Kafka asks its controller for the first block of ids, and has the producer come again",
        always=False,
    ),
    KnownDifference(f"{MUTATED}Fetch v.* SessionEpoch 0", "/SessionId", "ids of sessions are random"),
    KnownDifference(
        f"{MUTATED}DescribeLogDirs v.*", ".*/(LogDir|UsableBytes)", "its own directory, at another time"
    ),
    KnownDifference(
        f"{MUTATED}DescribeAcls v.* 0",
        ".*",
        "Kafka closes the connection; Barnabas says that there is no authorizer",
    ),
    KnownDifference(
        f"{MUTATED}(Metadata v.* Topics.Name null|IncrementalAlterConfigs v.*ConfigOperation .*"
        "|Describe(TopicPartitions|ShareGroupOffsets) v.*|AlterShareGroupOffsets v.*PartitionIndex -.*)",
        ".*",
        "Kafka stumbles over it, and answers UNKNOWN_SERVER_ERROR or the operations on a topic that cannot be",
    ),
    KnownDifference(
        f"{MUTATED}WriteTxnMarkers v.* Markers.Producer(Id -1|Epoch -2)",
        ".*",
        "what only brokers ask: Kafka stumbles over a producer that is none, and judges the epoch before the batch",
    ),
    KnownDifference(
        "metadata v1[23]: neither name nor id",
        ".*/ErrorCode",
        "Kafka stumbles; Barnabas answers INVALID_REQUEST, as older versions do",
    ),
    KnownDifference("pages: bad names", ".*/ErrorCode", "Kafka stumbles over names that no topic can have"),
    KnownDifference("log dirs v.*", ".*/LogDir", "its own directory"),
    KnownDifference(
        "(grow|producers|move).*",
        ".*/(Results|Partitions)/.*/ErrorMessage",
        "words for people where Kafka has none",
    ),
    KnownDifference(
        "coordinator v6: share without a partition",
        ".*/ErrorMessage",
        "words for people where Kafka has an empty text",
    ),
    KnownDifference(
        "versions v.*",
        ".*/MinVersion",
        "versions that Kafka 4 has removed are served: clients of any age connect",
    ),
    KnownDifference(
        "versions v.*",
        "/ApiKeys/(88|89)/MaxVersion",
        "version 1 of the streams groups' requests is that of Kafka 4.4; its layout is published",
    ),
    KnownDifference(
        "versions v.*",
        "/ApiKeys/(55|64|80|81)",
        "there is no quorum of controllers to describe or to change",
    ),
    KnownDifference(
        "versions v[34]",
        "/((Supported|Finalized)Features(/(metadata|kraft|eligible.leader.replicas).version)?|FinalizedFeaturesEpoch)",
        "features of a quorum of controllers and its records: decision 143",
    ),
)
