"""Apache Kafka as an oracle: the released jars from Maven Central, one broker on loopback, its own tools.

    with RealKafka(version="4.x") as kafka:
        ...  # kafka.bootstrap

The rule: standard library, a JDK 17 and Maven; what is fetched goes to `.tools/`.
"""

from __future__ import annotations

from compat.kafka.broker import RealKafka, ZooKeeperServer, free_port
from compat.kafka.releases import KafkaError, release
from compat.kafka.tools import ToolProcess, run_tool, tool_command

__all__ = [
    "KafkaError", "RealKafka", "ToolProcess", "ZooKeeperServer", "free_port", "release", "run_tool", "tool_command",
]  # fmt: skip
