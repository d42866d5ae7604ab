"""Random walks: topics, groups, transactions and ACLs are used at random, and a model predicts the answers.

The rule: a walk is determined by its seed, so that a failure can be repeated; a model contains only promises of
the protocol, and every step is checked immediately.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.suites.acting import case, rule_of
from barnabas.tools.conformance.walks import acls, classic_groups, consumer_groups, logs, transactions

OFFSETS = ("OffsetCommit", "OffsetFetch")
GROUPS = ("FindCoordinator", "DeleteGroups", *OFFSETS)


def cases(count: int) -> Iterator[Case]:
    """Yield this many walks of each kind."""
    for number in range(count):
        yield case(
            f"walks/topics {number}",
            rule_of(logs.run),
            "KIP-98, KIP-107, protocol guide",
            logs.run,
            "Produce",
            "Fetch",
            "ListOffsets",
            "CreateTopics",
            "InitProducerId",
            *OFFSETS,
        )
        yield case(
            f"walks/classic group {number}",
            rule_of(classic_groups.run),
            "KIP-345, KIP-394, protocol guide",
            classic_groups.run,
            "SyncGroup",
            "Heartbeat",
            "LeaveGroup",
            "DescribeGroups",
            *GROUPS,
            with_topic=True,
            JoinGroup=5,
        )
        yield case(
            f"walks/consumer group {number}",
            rule_of(consumer_groups.run),
            "KIP-848",
            consumer_groups.run,
            "ConsumerGroupDescribe",
            *GROUPS,
            feature=("group.version", 1),
            ConsumerGroupHeartbeat=1,
        )
        yield case(
            f"walks/transactions {number}",
            rule_of(transactions.run),
            "KIP-98, KIP-447, KIP-890",
            transactions.run,
            "Produce",
            "Fetch",
            "ListOffsets",
            "InitProducerId",
            "AddPartitionsToTxn",
            "AddOffsetsToTxn",
            "EndTxn",
            "TxnOffsetCommit",
            *GROUPS,
            OffsetFetch=7,
        )
        yield case(
            f"walks/ACLs {number}",
            rule_of(acls.run),
            "KIP-140, KIP-290, KIP-430",
            acls.run,
            CreateAcls=1,
            DescribeAcls=1,
            DeleteAcls=1,
        )
