"""Conditions of decisions about partitions: levels of features, settings of topics, brokers and their log dirs. Pure.

The rule: all is read from the image after the appended records. A setting is read from the topic, else from this
controller, all brokers, and the file of this node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.cluster.kraft.controller.outcome import ControllerState
from barnabas.cluster.kraft.controller.versions import DIRECTORIES_LEVEL
from barnabas.cluster.kraft.image import BROKER, TOPIC, QuorumImage
from barnabas.cluster.kraft.values import LOST, MIGRATING, UNASSIGNED, Broker, Topic
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

NO_BUMP_ON_SHRINK_LEVEL: Final = 12
"""3.6-IV0: from this level on a leader keeps its epoch when the ISR shrinks (KAFKA-15021)."""
RECORDS_PER_REQUEST_MAX: Final = 10_000
"""Kafka's MAX_RECORDS_PER_USER_OP."""
_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


def check_size(records: Sequence[Any]) -> None:
    """Raise POLICY_VIOLATION if a client's request leads to more records than the limit."""
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"the request leads to {len(records)} changes: at most {RECORDS_PER_REQUEST_MAX} are possible",
        )


# --- features and settings ------------------------------------------------------------------------------------------


def has_directories(image: QuorumImage) -> bool:
    """Return whether replicas are assigned to log dirs (KIP-858)."""
    return image.metadata_version >= DIRECTORIES_LEVEL


def allows_unclean(state: ControllerState, topic_name: str) -> bool:
    """Return whether a replica out of sync may become the leader if no other can."""
    text = _setting(state, topic_name, _UNCLEAN)
    return bool(state.config.value_of(_UNCLEAN)) if text is None else text.lower() == "true"


def min_isr(state: ControllerState, topic: Topic) -> int:
    """Return min.insync.replicas of a topic, at most the number of its replicas."""
    text = _setting(state, topic.name, _MIN_ISR)
    count = int(state.config.value_of(_MIN_ISR) if text is None else text)
    first = state.image.partitions.get((topic.id, 0))
    return count if first is None else min(count, len(first.replicas))


def effective_config(state: ControllerState) -> BrokerConfig:
    """Return this node's settings, with dynamic values from the image for it and for all brokers."""
    of_all = state.image.settings.get((BROKER, ""), {})
    of_this = state.image.settings.get((BROKER, str(state.node_id)), {})
    try:
        return state.config.with_dynamic(of_all, of_this) if of_all or of_this else state.config
    except SettingError:  # a value that another release accepted
        return state.config


def _setting(state: ControllerState, topic_name: str, name: str) -> str | None:
    for resource in ((TOPIC, topic_name), (BROKER, str(state.node_id)), (BROKER, "")):
        text = state.image.settings.get(resource, {}).get(name)
        if text is not None:
            return text
    return None


# --- brokers --------------------------------------------------------------------------------------------------------


def check_epoch(image: QuorumImage, broker_id: int, epoch: int) -> Broker:
    """Return a broker. Raises STALE_BROKER_EPOCH if it is not registered, or has another epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise RequestError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {epoch}"
        )
    return broker


def is_active(image: QuorumImage, broker_id: int) -> bool:
    """Return whether a broker can be in sync and lead: registered, neither fenced nor shutting down."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def has_online_dir(broker: Broker | None, directory: bytes) -> bool:
    """Return whether a replica's log dir on a broker is online, as far as the registration tells."""
    if broker is None or directory == LOST:
        return False
    # The broker registered at a level without log dirs in registrations: their state is unknown.
    return directory in (UNASSIGNED, MIGRATING) or not broker.log_dirs or directory in broker.log_dirs


def default_dir(image: QuorumImage, broker_id: int) -> bytes:
    """Return the log dir of a new replica: the only one of its broker, or unassigned until the broker has chosen."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def is_reserved(directory: bytes) -> bool:
    """Return whether the id of a log dir is one of the first hundred, which are reserved (KIP-858)."""
    return not any(directory[:8]) and int.from_bytes(directory[8:], "big", signed=True) < 100
