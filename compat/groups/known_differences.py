"""Differences between the coordinators of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import KnownDifference

SUPERSEDED = (
    "who asks again while a request of its own waits gets an answer to both; Kafka never answers the first"
)
AT_ONCE = "Kafka finds out beside the heartbeat which topics match a pattern, Barnabas within it"
BEGUN = "the state of a shared topic is begun before the answer; Kafka has the member come again"
ODD_ONE = "which of members that are alike gets the partition that is left over, or shares which"
STUMBLES = "Kafka stumbles over this; Barnabas says what is wrong"

KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        "(absent|deleted): JoinGroup .*: (then|at last) described",
        ".*/GroupState",
        "a group that nobody could join is not there; Kafka keeps it in memory, empty",
    ),
    KnownDifference(
        "pending: JoinGroup (anna by|bert's instance, other id).*: asked",
        ".*",
        "Kafka stumbles over an instance id beside an id that was given to a dynamic member",
    ),
    KnownDifference("preparing: JoinGroup bert.*: bert joins.*", ".*", SUPERSEDED),
    KnownDifference("completing: SyncGroup bert.*: bert syncs.*", ".*", SUPERSEDED),
    KnownDifference(
        "completing: LeaveGroup .*: bert syncs.*",
        ".*",
        "who leaves while it waits gets an answer; Kafka gives none",
    ),
    KnownDifference(
        "preparing: JoinGroup .*: (bert joins.*|asked.*)",
        "/(Leader|Members.*)",
        "whoever leads when the leader has left: in Kafka it is by chance",
        always=False,
    ),
    KnownDifference(
        "(consumer|streams) empty: JoinGroup .*",
        ".*",
        "an empty group of the new protocol gives way to one who joins; in Kafka also to one who is refused",
    ),
    # --- offsets
    KnownDifference(".*: OffsetFetch no member with epoch.*: asked", ".*/ErrorCode", STUMBLES),
    # --- members with epochs
    KnownDifference("consumer.*: JoinGroup new, bad subscription.*: asked", "/ErrorCode", STUMBLES),
    KnownDifference(
        "consumer.*: .*(described as classic|at last listed)",
        ".*/MemberAssignment",
        "when a group becomes classic again its members are described with what they have, not with what they shall have",
        always=False,
    ),
    KnownDifference(".*: ConsumerGroupHeartbeat .* (a )?pattern.*", ".*", AT_ONCE),
    KnownDifference(
        "consumer static: ConsumerGroupHeartbeat anna joins again by her instance.*",
        ".*",
        "a static member that was fenced may come back at once with the id it had",
    ),
    KnownDifference(
        "consumer moving: ConsumerGroupHeartbeat anna joins again by her instance.*",
        ".*Assignment.*",
        "a member that becomes static keeps what it had",
    ),
    KnownDifference(
        "(consumer|stable|share|preparing|pending).*",
        ".*(Assignment/TopicPartitions|/Assignment).*",
        ODD_ONE,
        always=False,
    ),
    KnownDifference(
        "(share.*|.*: ShareGroupHeartbeat .*)", ".*(Assignment/TopicPartitions|/Assignment|Epoch)", BEGUN
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat .* (bad copartition|a part twice|a tag twice).*: asked",
        "/ErrorCode",
        STUMBLES,
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat (carl joins by an instance|anna, an instance|anna, task offsets).*",
        ".*",
        "static members and warm-up tasks are served; Kafka 4.3 refuses what belongs to them",
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat carl joins with an endpoint.*",
        ".*/(EndpointInformationEpoch|PartitionsByUserEndpoint.*)",
        "the first endpoint of a group is news already",
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat carl joins, (changelog|repartition).*: at last.*",
        ".*/Partitions",
        "Kafka tells how many partitions an internal topic has when a member has come again",
        always=False,
    ),
    # --- transactions
    KnownDifference(
        "filters: add to no transaction", ".*", "Kafka never answers a request about no transaction"
    ),
)
