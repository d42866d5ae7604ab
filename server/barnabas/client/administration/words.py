"""Words and numbers of Kafka's requests for administration: kinds of resources, groups, changes and elections.

The rule: a command that only shows its options needs these, and nothing else of the client.
"""

from __future__ import annotations

RESOURCE_TYPES = (
    "unknown",
    "any",
    "topic",
    "group",
    "cluster",
    "transactional-id",
    "delegation-token",
    "user",
)
PATTERN_TYPES = ("unknown", "any", "match", "literal", "prefixed")
OPERATIONS = (
    "unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit",
)  # fmt: skip
PERMISSIONS = ("unknown", "any", "deny", "allow")
CLUSTER_NAME = "kafka-cluster"
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS = 8192
TYPES = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
"""Numbers of the kinds of resources that have settings."""
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""
CLASSIC, CONSUMER, SHARE, STREAMS = KINDS = "classic", "consumer", "share", "streams"
PREFERRED, UNCLEAN = 0, 1
"""Elections: of the first replica, or of any that lives, which may lose records."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
