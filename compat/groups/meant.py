"""Differences between the coordinators of Apache Kafka and of Barnabas that are meant."""

from __future__ import annotations

from compat.kit.compare import Meant

SUPERSEDED = (
    "who asks again while a request of its own waits gets an answer to both; Kafka never answers the first"
)

MEANT: tuple[Meant, ...] = (
    Meant(
        "(absent|deleted): JoinGroup .*: (then|at last) described",
        ".*/GroupState",
        "a group that nobody could join is not there; Kafka keeps it in memory, empty",
    ),
    Meant(
        "pending: JoinGroup (anna by|bert's instance, other id).*: asked",
        ".*",
        "Kafka stumbles over an instance id beside an id that was given to a dynamic member",
    ),
    Meant("preparing: JoinGroup bert.*: bert joins.*", ".*", SUPERSEDED),
    Meant("completing: SyncGroup bert.*: bert syncs.*", ".*", SUPERSEDED),
    Meant(
        "completing: LeaveGroup bert.*: bert syncs.*",
        ".*",
        "who leaves while it waits gets an answer; Kafka gives none",
    ),
    Meant(
        "preparing: JoinGroup .*: (bert joins.*|asked.*)",
        "/(Leader|Members.*)",
        "whoever leads when the leader has left: in Kafka it is by chance",
        always=False,
    ),
)
