"""Differences between the settings of Apache Kafka and of Barnabas that are meant."""

from __future__ import annotations

from compat.kit.compare import Meant

OWN_ADDRESS = "its own ports and directories"
MEANT: tuple[Meant, ...] = (
    Meant(".*", r".*/(listeners|advertised\.listeners|log\.dirs)/(Value|Synonyms/.*Value)", OWN_ADDRESS),
    Meant(
        ".*",
        r".*/(listeners|listener\.security\.protocol\.map)/ReadOnly",
        "listeners are opened at the start only",
    ),
    Meant(
        ".*",
        r".*/(log\.)?record\.validation",
        "a setting of Barnabas alone: how far a leader looks at records",
    ),
    Meant(
        ".*",
        r".*/(metrics\.listener|telemetry\.(enable|(client\.)?retained\.(series|bytes)))",
        "settings of Barnabas alone: Kafka has receivers of metrics as plugins",
    ),
    Meant(
        ".*",
        r".*/4 1/Configs/log\.retention\.(hours|minutes)/Value",
        "once log.retention.ms is set, Kafka shows the other two as if they were not set",
    ),
    Meant(
        "(validate: |after )?change 4 '1': log.segment.bytes set 1000",
        ".*",
        "small segments are allowed, as in Kafka 3: decision 30",
    ),
    Meant(
        r"(validate: |after )?change 4 '1?': (sasl\.jaas\.config|(listener\.\S+\.)?(max\.connections|ssl\.\S+)) set .*",
        ".*",
        "what nothing here would enforce is INVALID_CONFIG: decision 88",
    ),
    Meant(
        r"after all changes.*|after replace .* 4 '1'",
        r".*/Configs/(sasl\.jaas\.config|listener\.name\.plaintext\.max\.connections)(/(ConfigSource|Synonyms))?",
        "and so these were not changed before: decision 88",
    ),
    Meant(
        "(validate: )?change 2 'plain': retention.ms (9|-1) 1",
        ".*/ErrorCode",
        "Kafka stumbles over an operation that does not exist; Barnabas answers INVALID_REQUEST",
    ),
)
