"""Parts that only a broker of a KRaft quorum has: its registration, and what it asks of the active controller.

The rule: the active controller decides everything about the cluster; nothing of that is done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from barnabas.broker.membership import MembershipParts
from barnabas.broker.quorum_joining import QuorumParticipation
from barnabas.cluster.kraft.forwarding import Forwarder
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.storage_parts import QuorumParts, Storage
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment


def quorum_parts(
    config: BrokerConfig,
    environment: Environment,
    storage: Storage,
    endpoints: Mapping[str, tuple[str, int]],
    quorum: QuorumParts,
) -> MembershipParts:
    """Make them."""
    participation = QuorumParticipation(config, environment, endpoints, quorum, storage.logs)

    storage.failures.on_lost.append(participation.report_lost_dirs)
    forwarder = Forwarder(quorum.controllers)
    return MembershipParts(ElsewhereController(), None, (participation.run,), participation, forwarder)


class ElsewhereController:
    """Implements `ports.Controller` where it is never here: requests for it are forwarded before they arrive."""

    is_active = False
    epoch = 0

    def __getattr__(self, name: str) -> NoReturn:
        raise RequestError(ErrorCode.NOT_CONTROLLER, "the active controller of the quorum answers that")
