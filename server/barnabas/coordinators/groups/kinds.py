"""Table of the kinds of groups: how their records are replayed, members watched, and timers handled. Pure.

The rule: a kind is a row of the table; the shard looks it up by `Group.kind`, or by the type of a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from barnabas.coordinators.groups import protocols
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import membership as consumer_membership
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.replay import replay as replay_consumer
from barnabas.coordinators.groups.directory import G, GroupDirectory
from barnabas.coordinators.groups.replaying import Replay
from barnabas.coordinators.groups.share import membership as share_membership
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.share.replay import replay as replay_share
from barnabas.coordinators.groups.streams import membership as streams_membership
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.replay import replay as replay_streams
from barnabas.coordinators.statemachine.context import EventContext

Timer = tuple[str, ...]
"""Name, group id and, for most, member id."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[G]):
    """A kind of group."""

    group: type[G]
    watch: Callable[[G, EventContext], None]
    """After a load: start all timers of all members anew."""
    expire: Callable[[GroupDirectory, G, Timer, EventContext], None]
    """Handle an expired timer."""
    make: Callable[[GroupDirectory, str], G] | None = None
    """Create the group of a replayed record, if `replay` is set."""
    replay: Replay[G] | None = None
    """The records of the kind; the shard replays those of classic groups itself."""


def _expire_classic(shard: GroupDirectory, group: ClassicGroup, timer: Timer, context: EventContext) -> None:
    del shard
    match timer[0]:
        case "session":
            group.session_expired(timer[2], context.now_ms, context.out)
        case "join":
            group.join_expired(context.now_ms, context.out)
        case "sync":
            group.sync_expired(context.now_ms, context.out)


def _make_consumer(shard: GroupDirectory, group_id: str) -> ConsumerGroup:
    return ConsumerGroup(group_id, shard.settings)


KINDS: dict[str, Kind[Any]] = {
    kind.group.kind: kind
    for kind in (
        Kind(
            ClassicGroup,
            watch=lambda group, context: group.watch_sessions(context.now_ms, context.out),
            expire=_expire_classic,
        ),
        Kind(
            ConsumerGroup,
            watch=consumer_membership.watch_all,
            expire=lambda shard, group, timer, context: protocols.member_overdue(
                shard, group, timer[0], timer[2], context
            ),
            make=_make_consumer,
            replay=replay_consumer,
        ),
        Kind(
            ShareGroup,
            watch=share_membership.watch_all,
            expire=lambda _, group, timer, context: share_membership.overdue(group, timer[2], context),
            make=lambda shard, group_id: shard.new_share_group(group_id),
            replay=replay_share,
        ),
        Kind(
            StreamsGroup,
            watch=streams_membership.watch_all,
            expire=lambda _, group, timer, context: streams_membership.overdue(
                group, timer[0], timer[2], context
            ),
            make=lambda shard, group_id: shard.replayed_streams_group(group_id),
            replay=replay_streams,
        ),
    )
}
BY_RECORD_TYPE: dict[int, Kind[Any]] = {
    type_id: kind for kind in KINDS.values() if kind.replay is not None for type_id in kind.replay.type_ids
}
