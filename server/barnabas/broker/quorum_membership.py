"""Parts that only a broker of a KRaft quorum has: its registration, and its requests to the active controller.

The rule: only the active controller makes decisions about the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from barnabas.broker.membership import MembershipParts
from barnabas.broker.quorum_joining import QuorumParticipation
from barnabas.cluster.kraft.directories import DirectoryAssignments
from barnabas.cluster.kraft.forwarding import Forwarder
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.storage_parts import QuorumParts, Storage
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget


def quorum_parts(
    config: BrokerConfig,
    environment: Environment,
    budget: LoopBudget,
    storage: Storage,
    endpoints: Mapping[str, tuple[str, int]],
    quorum: QuorumParts,
) -> MembershipParts:
    """Make them."""
    participation = QuorumParticipation(
        config, environment, endpoints, quorum, storage.logs, storage.failures.give_up
    )

    logs = storage.logs

    def directory_of(topic: str, index: int) -> bytes | None:
        partition_log = logs.get(topic, index)
        meta = logs.meta.get(partition_log.log_dir) if partition_log is not None else None
        return meta.directory_id if meta is not None else None

    directories = DirectoryAssignments(
        config.get(settings.NODE_ID),
        quorum.store,
        quorum.controllers,
        lambda: participation.broker_epoch,
        directory_of,
        budget,
    )
    storage.replicas.on_log_replaced = directories.compare
    storage.failures.on_lost.append(participation.report_lost_dirs)
    quorum.store.subscribe(directories)
    quorum.store.subscribe(participation)
    forwarder = Forwarder(quorum.controllers)
    return MembershipParts(
        ElsewhereController(), None, (participation.run, directories.run), participation, forwarder
    )


class ElsewhereController:
    """Implements `ports.Controller` on a broker that is never the controller: requests for it are forwarded before."""

    is_active = False
    epoch = 0

    def __getattr__(self, name: str) -> NoReturn:
        raise RequestError(ErrorCode.NOT_CONTROLLER, "the active controller of the quorum answers that")
