"""BrokerHeartbeat v0-v2: a broker is alive, and asks to be unfenced, fenced or shut down. Pure.

v1 names log dirs that have failed (KIP-858), v2 those that get no new replicas (KIP-1066).

The rule: a broker is unfenced once it has read its own registration. A broker that is fenced or leads nothing may shut
down immediately; another once it leads nothing and every serving broker has read the records that moved its leaders.
"""

from __future__ import annotations

from enum import Enum

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.brokers import fence, unfence
from barnabas.cluster.kraft.controller.conditions import (
    check_epoch,
    has_directories,
)
from barnabas.cluster.kraft.controller.index import index_of
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Steps
from barnabas.cluster.kraft.controller.sessions import Session, sessions_of
from barnabas.cluster.kraft.controller.versions import CORDONED_LEVEL
from barnabas.cluster.kraft.values import Broker
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.generated.metadata_records.broker_registration_change import BrokerRegistrationChangeRecord


class Stage(Enum):
    """Stages of a broker's life, as the controller sees it."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting down"
    SHUT_DOWN = "shut down"


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, caller: Caller) -> Steps[Outcome]:
    """Prolong a broker's session, and move it to its next stage. Raises STALE_BROKER_EPOCH."""
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    broker = check_epoch(state.image, request.broker_id, request.broker_epoch)
    session = sessions_of(state).session(broker.id, broker.epoch)
    session.heard_ms = state.monotonic_ms
    before = _stage(broker, session)
    after = next_stage(state, broker, session, request)
    lost = _lost_dirs(state, broker, request)
    batch = Batch(state, offline_dirs=lost)
    if after is not before:
        if after is Stage.UNFENCED:
            yield from unfence(batch, broker)
        elif after is Stage.SHUTTING_DOWN:
            yield from _begin_shutdown(batch, broker)
        else:
            yield from fence(batch, broker)
    yield from _lose_dirs(batch, broker, lost)
    _cordon(batch, broker, request)

    session.metadata_offset = request.current_metadata_offset
    if after is not Stage.SHUTTING_DOWN:
        session.shutdown_offset = -1
    elif session.shutdown_offset < 0:
        session.shutdown_offset = max(state.next_offset + len(batch.records) - 1, 0)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= session.registration_offset,
        is_fenced=after in (Stage.FENCED, Stage.SHUT_DOWN),
        should_shut_down=after is Stage.SHUT_DOWN,
    )
    return Outcome(response, tuple(batch.records), is_atomic=False)


def _stage(broker: Broker, session: Session) -> Stage:
    if broker.fenced:
        return Stage.FENCED
    return Stage.UNFENCED if session.shutdown_offset < 0 else Stage.SHUTTING_DOWN


def next_stage(
    state: ControllerState, broker: Broker, session: Session, request: BrokerHeartbeatRequest
) -> Stage:
    """Return the stage of a broker after a heartbeat."""
    stage = _stage(broker, session)
    if stage is Stage.FENCED:
        if request.want_shut_down:
            return Stage.SHUT_DOWN
        is_caught_up = request.current_metadata_offset >= session.registration_offset
        return Stage.UNFENCED if is_caught_up and not request.want_fence else Stage.FENCED
    leads = index_of(state).leads(broker.id)
    if stage is Stage.SHUTTING_DOWN:
        others_follow = session.shutdown_offset <= sessions_of(state).lowest_active_offset(state.image)
        return Stage.SHUT_DOWN if others_follow and not leads else Stage.SHUTTING_DOWN
    if request.want_shut_down:
        return Stage.SHUTTING_DOWN if leads and not request.want_fence else Stage.SHUT_DOWN
    return Stage.FENCED if request.want_fence else Stage.UNFENCED


def _begin_shutdown(batch: Batch, broker: Broker) -> Steps[None]:
    """Remove a broker from ISRs and leadership while it still serves."""
    if not broker.in_controlled_shutdown:
        batch.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            )
        )
    yield from batch.update(index_of(batch.state).in_isr(broker.id), removed=broker.id)


def _lost_dirs(state: ControllerState, broker: Broker, request: BrokerHeartbeatRequest) -> tuple[bytes, ...]:
    """Return the log dirs that are offline now, and were online in the registration."""
    if not has_directories(state.image):
        return ()
    return tuple(directory for directory in broker.log_dirs if directory in request.offline_log_dirs)


def _lose_dirs(batch: Batch, broker: Broker, lost: tuple[bytes, ...]) -> Steps[None]:
    index = index_of(batch.state)
    for directory in lost:
        yield from batch.update(index.in_dir(directory), removed=broker.id)
    remaining = [directory for directory in broker.log_dirs if directory not in lost]
    if lost and remaining:  # a record without log dirs means that they have not changed
        batch.records.append(
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=remaining)
        )


def _cordon(batch: Batch, broker: Broker, request: BrokerHeartbeatRequest) -> None:
    """Note the log dirs that get no new replicas; a starting broker reports none."""
    cordoned = request.cordoned_log_dirs
    if cordoned is None or batch.state.image.metadata_version < CORDONED_LEVEL:
        return
    if broker.cordoned_log_dirs is None or set(cordoned) != set(broker.cordoned_log_dirs):
        batch.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )


HANDLERS: Handlers = {63: heartbeat}
