"""Differences between the settings of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

OWN_ADDRESS = "its own ports and directories"
KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ".*", r".*/(listeners|advertised\.listeners|log\.dirs)/(Value|Synonyms/.*Value)", OWN_ADDRESS
    ),
    KnownDifference(
        ".*",
        r".*/(listeners|listener\.security\.protocol\.map)/ReadOnly",
        "listeners are opened at the start only",
    ),
    KnownDifference(
        ".*2 '(no-such|in valid|)'.*|describe 2 .*",
        ".*/ErrorMessage",
        "words for people where Kafka has an empty text or none",
    ),
    KnownDifference(
        ".*",
        r".*/4 1/Configs/log\.retention\.(hours|minutes)/Value",
        "once log.retention.ms is set, Kafka shows the other two as if they were not set",
    ),
    KnownDifference(
        "(validate: |after )?change 4 '1': log.segment.bytes set 1000",
        ".*",
        "small segments are allowed, as in Kafka 3: decision 30",
    ),
    KnownDifference(
        r"(validate: |after )?change 4 '1?': (sasl\.jaas\.config|(listener\.\S+\.)?(max\.connections|ssl\.\S+)) set .*",
        ".*",
        "what nothing here would enforce is INVALID_CONFIG: decision 88",
    ),
    KnownDifference(
        "(validate: )?change 2 'plain': retention.ms (9|-1) 1",
        ".*/Error(Code|Message)",
        "Kafka stumbles over an operation that does not exist; Barnabas answers INVALID_REQUEST, and says which",
    ),
)
