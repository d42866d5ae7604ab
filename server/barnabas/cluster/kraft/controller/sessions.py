"""Sessions of brokers: when each last sent a heartbeat, and how far it has read the metadata log.

The rule: sessions are not in the log; each new leader begins its own. It counts unfenced brokers as just heard of, so
that a change of leaders fences none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.cluster.kraft.controller.outcome import ControllerState
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.config.broker import BROKER_SESSION_TIMEOUT_MS

PART = "sessions"
_NONE = -1
FAR: Final = 2**63 - 1


@dataclass(slots=True)
class Session:
    """Session of one registration of a broker."""

    epoch: int
    """Broker epoch."""
    registration_offset: int
    """Offset of the registration's record: a broker that has read it has caught up."""
    heard_ms: int | None = None
    """Time of the last heartbeat; None without a session: before the first heartbeat, and after the session's end."""
    metadata_offset: int = _NONE
    """The last offset that the broker has reported as applied."""
    shutdown_offset: int = _NONE
    """Offset that the other brokers must have applied before this broker may shut down; -1 if it is not shutting down."""


class BrokerSessions:
    """Sessions by broker id."""

    def __init__(self, image: QuorumImage, now_ms: int) -> None:
        self._sessions = {
            broker.id: Session(broker.epoch, broker.epoch, None if broker.fenced else now_ms)
            for broker in image.brokers.values()
        }

    def session(self, broker_id: int, epoch: int) -> Session:
        """Return the session of a registered broker."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = Session(epoch, epoch)
        return session

    def registered(self, broker_id: int, epoch: int, offset: int) -> None:
        """Start a new session after a registration with its record at an offset; the same process keeps its session."""
        before = self._sessions.get(broker_id)
        heard_ms = before.heard_ms if before is not None and before.epoch == epoch else None
        self._sessions[broker_id] = Session(epoch, offset, heard_ms)

    def end(self, broker_id: int, epoch: int) -> None:
        """End the session of a registration."""
        session = self.session(broker_id, epoch)
        session.heard_ms, session.shutdown_offset = None, _NONE

    def removed(self, broker_id: int) -> None:
        """Remove the session of an unregistered broker."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: int, epoch: int, now_ms: int, timeout_ms: int) -> bool:
        """Return whether a registration of a broker has a session that has not ended."""
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch and not _is_over(session, now_ms, timeout_ms)

    def ended(self, now_ms: int, timeout_ms: int) -> tuple[int, ...]:
        """Return the brokers with sessions that have run out, the longest silent first."""
        ended = [
            (session.heard_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if session.heard_ms is not None and _is_over(session, now_ms, timeout_ms)
        ]
        return tuple(broker_id for _, broker_id in sorted(ended))

    def lowest_active_offset(self, image: QuorumImage) -> int:
        """Return the lowest offset that all serving brokers have applied."""
        return min(
            (
                self.session(broker.id, broker.epoch).metadata_offset
                for broker in image.brokers.values()
                if not broker.fenced and self.session(broker.id, broker.epoch).shutdown_offset == _NONE
            ),
            default=FAR,
        )


def _is_over(session: Session, now_ms: int, timeout_ms: int) -> bool:
    return session.heard_ms is None or session.heard_ms + timeout_ms < now_ms


def sessions_of(state: ControllerState) -> BrokerSessions:
    """Return the sessions; without any, start them now."""
    sessions: BrokerSessions | None = state.parts.get(PART)
    if sessions is None:
        sessions = state.parts[PART] = BrokerSessions(state.image, state.monotonic_ms)
    return sessions


def timeout_ms(state: ControllerState) -> int:
    """Return the session timeout of brokers."""
    return state.config.get(BROKER_SESSION_TIMEOUT_MS)
