"""Registration of brokers (BrokerRegistration v0-v4), their fencing and removal (UnregisterBroker v0); and of controllers.
Pure.

BrokerRegistration: v1 has a flag for a broker that is migrated from ZooKeeper, which is refused, v2 has log dirs, v3 the
epoch before a clean shutdown, v4 is sent by brokers that can cordon log dirs.

The rule: a broker id belongs to one process at a time. Another process gets it, with a new epoch, when the session of the
last one has ended and that process is out of all ISRs and leads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.conditions import (
    has_directories,
    is_reserved,
)
from barnabas.cluster.kraft.controller.features import has_elr
from barnabas.cluster.kraft.controller.index import index_of
from barnabas.cluster.kraft.controller.outcome import (
    Caller,
    ControllerState,
    Handlers,
    Outcome,
    Records,
    Steps,
)
from barnabas.cluster.kraft.controller.sessions import sessions_of, timeout_ms
from barnabas.cluster.kraft.controller.versions import (
    CONTROLLER_REGISTRATION_LEVEL,
    CONTROLLER_UNREGISTRATION_LEVEL,
)
from barnabas.cluster.kraft.image import METADATA_VERSION, QuorumImage
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import Broker
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.broker_registration_change import BrokerRegistrationChangeRecord
from barnabas.wire.generated.metadata_records.register_broker import RegisterBrokerRecord
from barnabas.wire.generated.metadata_records.register_controller import RegisterControllerRecord
from barnabas.wire.generated.metadata_records.unregister_broker import UnregisterBrokerRecord
from barnabas.wire.generated.metadata_records.unregister_controller import UnregisterControllerRecord
from barnabas.wire.generated.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.wire.generated.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

FENCE, UNFENCE = 1, -1
PREVIOUS_EPOCH_SINCE = 3
PROTOCOLS: Final = range(4)
"""PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."""


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, caller: Caller
) -> Steps[Outcome]:
    """Register a broker, or change its registration if it comes from the same process.

    Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED (ZooKeeper),
    INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    image, sessions = state.image, sessions_of(state)
    if request.cluster_id != state.cluster_id:
        raise RequestError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster is {state.cluster_id}, not {request.cluster_id}"
        )
    before = image.brokers.get(request.broker_id)
    is_same = before is not None and before.incarnation_id == request.incarnation_id
    if (
        before is not None
        and not is_same
        and sessions.is_valid(before.id, before.epoch, state.monotonic_ms, timeout_ms(state))
    ):
        raise RequestError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is broker {before.id}; after a restart its session ends by itself",
        )
    if request.is_migrating_zk_broker:
        raise RequestError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers that are migrated from ZooKeeper are not taken"
        )
    _check_log_dirs(image, request)
    _check_listeners(request.listeners)
    _check_features(state, request.features)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=state.next_offset,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(entry.name, entry.host, entry.port, entry.security_protocol)
            for entry in _by_name(request.listeners)
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                entry.name, entry.min_supported_version, entry.max_supported_version
            )
            for entry in request.features
        ],
        rack=request.rack,
        log_dirs=list(request.log_dirs) if has_directories(image) else [],
    )
    batch = Batch(state)
    if before is not None and is_same:
        record.broker_epoch = before.epoch
        record.fenced = before.fenced
        record.in_controlled_shutdown = before.in_controlled_shutdown
    else:
        is_clean = (
            before is not None
            and caller.version >= PREVIOUS_EPOCH_SINCE
            and before.epoch == request.previous_broker_epoch
        )
        yield from _leave(batch, request.broker_id, is_clean=is_clean)
    batch.records.append(record)
    offset = state.next_offset + len(batch.records) - 1
    sessions.registered(request.broker_id, record.broker_epoch, offset)
    response = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return Outcome(response, tuple(batch.records), is_atomic=False)


def _check_log_dirs(image: QuorumImage, request: BrokerRegistrationRequest) -> None:
    if not has_directories(image):
        return
    log_dirs = request.log_dirs
    if not log_dirs:
        raise RequestError(ErrorCode.INVALID_REGISTRATION, "a broker needs a log dir")
    if any(is_reserved(directory) for directory in log_dirs):
        raise RequestError(ErrorCode.INVALID_REGISTRATION, "the id of a log dir is a reserved one")
    if len(set(log_dirs)) < len(log_dirs):
        raise RequestError(ErrorCode.INVALID_REGISTRATION, "two log dirs have the same id")
    for broker in image.brokers.values():
        if broker.id != request.broker_id and not set(log_dirs).isdisjoint(broker.log_dirs):
            raise RequestError(ErrorCode.INVALID_REGISTRATION, f"broker {broker.id} has one of the log dirs")


def _check_listeners(listeners: Sequence[Any]) -> None:
    """Refuse a listener that a controller of Kafka could not write, or that would stop it when read from the log."""
    for listener in listeners:
        if not listener.name or not listener.host.strip() or not listener.port:
            raise RequestError(
                ErrorCode.INVALID_REGISTRATION,
                f"listener {listener.name!r} at {listener.host!r}:{listener.port} lacks its name, host or port",
            )
        if listener.security_protocol not in PROTOCOLS:
            raise RequestError(
                ErrorCode.INVALID_REGISTRATION,
                f"listener {listener.name} has an unknown protocol {listener.security_protocol}",
            )


def _check_features(state: ControllerState, features: Sequence[BrokerRegistrationRequest.Feature]) -> None:
    """Check that a broker supports the level of each feature; a feature without a level is at 0."""
    levels = {**state.image.features, KRAFT_VERSION: state.kraft_version}
    for feature in features:
        level = levels.get(feature.name, 0)
        if not feature.min_supported_version <= level <= feature.max_supported_version:
            raise _unsupported(feature.name, level)
    names = {feature.name for feature in features}
    if METADATA_VERSION not in names:
        raise RequestError(
            ErrorCode.INVALID_REGISTRATION, f"a broker must say which {METADATA_VERSION} it supports"
        )
    for name, level in levels.items():
        if level and name not in names:
            raise _unsupported(name, level)


def _unsupported(feature: str, level: int) -> RequestError:
    return RequestError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"the broker does not support level {level} of {feature}, which counts here",
    )


def _by_name(listed: Sequence[Any]) -> list[Any]:
    """Return the entries, only the last of each name."""
    return list({entry.name: entry for entry in listed}.values())


def _leave(batch: Batch, broker_id: int, *, is_clean: bool) -> Steps[None]:
    """Remove an ended process from ISRs; after an unclean shutdown it may have lost committed records."""
    index = index_of(batch.state)
    if has_elr(batch.state.image) and not is_clean:
        yield from batch.update(index.in_isr(broker_id), unclean=broker_id)
        yield from batch.update(index.in_elr(broker_id), unclean=broker_id)
    else:
        yield from batch.update(index.in_isr(broker_id), removed=broker_id)


# --- fencing --------------------------------------------------------------------------------------------------------


def fence(batch: Batch, broker: Broker) -> Steps[None]:
    """Remove a broker from ISRs and leadership, and fence it."""
    yield from batch.update(index_of(batch.state).in_isr(broker.id), removed=broker.id)
    batch.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
    )


def unfence(batch: Batch, broker: Broker) -> Steps[None]:
    """Unfence a broker, and elect it for leaderless partitions that it can lead."""
    batch.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
    )
    yield from batch.update(index_of(batch.state).leaderless(), added=broker.id)


def fence_stale(state: ControllerState) -> Steps[Records]:
    """Fence one broker after the end of its session; the next call sees the changed partitions."""
    sessions = sessions_of(state)
    for broker_id in sessions.ended(state.monotonic_ms, timeout_ms(state)):
        broker = state.image.brokers.get(broker_id)
        if broker is None:
            sessions.removed(broker_id)
        elif records := (yield from end_session(broker, state)):
            return records
    return ()


def end_session(broker: Broker, state: ControllerState) -> Steps[Records]:
    """End the session of a registration, and fence the broker; do nothing if it has registered again since."""
    current = state.image.brokers.get(broker.id)
    if current is None or current.epoch != broker.epoch:
        return ()
    sessions_of(state).end(broker.id, broker.epoch)
    batch = Batch(state)
    if not current.fenced:
        yield from fence(batch, current)
    return tuple(batch.records)


def with_session(state: ControllerState, broker_id: int) -> Broker | None:
    """Return a broker if it is registered and its session has not ended, else None."""
    broker = state.image.brokers.get(broker_id)
    lasts = broker is not None and sessions_of(state).is_valid(
        broker.id, broker.epoch, state.monotonic_ms, timeout_ms(state)
    )
    return broker if lasts else None


# --- leaving for good, and controllers ------------------------------------------------------------------------------


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, caller: Caller
) -> Steps[Outcome]:
    """Remove a broker's registration; its replicas stay assigned to it. Raises BROKER_ID_NOT_REGISTERED."""
    caller.require_on_cluster(Operation.ALTER)
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        raise RequestError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
        )
    batch, index = Batch(state), index_of(state)
    yield from batch.update((*index.in_isr(broker.id), *index.in_elr(broker.id)), removed=broker.id)
    batch.records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    sessions_of(state).removed(broker.id)
    return Outcome(UnregisterBrokerResponse(), tuple(batch.records), is_atomic=False)


def unregister_controller(
    state: ControllerState, request: UnregisterControllerRequest, caller: Caller
) -> Outcome:
    """Remove the registration of another controller, as Kafka 4.4 does; RemoveRaftVoter removes voters.

    Raises INVALID_REQUEST for this controller, UNSUPPORTED_VERSION below the level of the record,
    CONTROLLER_ID_NOT_REGISTERED.
    """
    caller.require_on_cluster(Operation.ALTER)
    if request.controller_id == state.node_id:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "the active controller cannot be unregistered: another must lead first"
        )
    if state.image.metadata_version < CONTROLLER_UNREGISTRATION_LEVEL:
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"controllers are unregistered from {METADATA_VERSION} {CONTROLLER_UNREGISTRATION_LEVEL} on",
        )
    if request.controller_id not in state.image.controllers:
        raise RequestError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"controller {request.controller_id} is not registered"
        )
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    return Outcome(UnregisterControllerResponse(), (record,))


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest, caller: Caller
) -> Outcome:
    """Register a controller, or change its registration. Raises UNSUPPORTED_VERSION, INVALID_REGISTRATION."""
    caller.require_on_cluster(Operation.CLUSTER_ACTION)
    if state.image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"controllers register from {METADATA_VERSION} {CONTROLLER_REGISTRATION_LEVEL} on",
        )
    _check_listeners(request.listeners)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                entry.name, entry.host, entry.port, entry.security_protocol
            )
            for entry in _by_name(request.listeners)
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                entry.name, entry.min_supported_version, entry.max_supported_version
            )
            for entry in request.features
        ],
    )
    return Outcome(ControllerRegistrationResponse(), (record,))


HANDLERS: Handlers = {
    62: register_broker,
    64: unregister_broker,
    70: register_controller,
    94: unregister_controller,
}
TICKS = (fence_stale,)
