"""Differences between refusals of Apache Kafka and of Barnabas that are meant."""

from __future__ import annotations

from compat.admin import meant as admin
from compat.kit.compare import Meant

MEANT: tuple[Meant, ...] = (
    *admin.MEANT[:2],
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
    Meant("InitProducerId v.*", "/ProducerId", "ids are given in blocks", always=False),
    Meant("DescribeTransactions v.*", ".*/TransactionStartTimeMs", "begun at different times", always=False),
)
