"""A group of the classic protocol: members join, one of them assigns, all sync; heartbeats keep them in.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable, and back to PreparingRebalance at any change

The rule: an event makes all checks before it changes anything, and marks that it changes the group ahead of its records
(`Decision.is_ahead`). Every change of membership goes through `_prepare_rebalance`, every new generation through
`_complete_join`. The durable state is the record of the group's metadata, written when a generation gets its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from barnabas.coordinators.groups.classic_state import ClassicState
from barnabas.coordinators.groups.generation import (
    LARGE_RECORD_BYTES,
    Generation,
    LeadersAnswer,
    RecordNeeded,
)
from barnabas.coordinators.groups.member import MANY_MEMBERS, Joining, Member, State
from barnabas.coordinators.statemachine.decision import Decision, ManyReplies
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Time for which a new member may wait for the others before it is removed (Kafka's constant)."""


class ClassicGroup(ClassicState):
    """One group. Lifecycle: created by the first join or commit, ended by a tombstone."""

    __slots__ = ()
    kind: ClassVar[str] = "classic"

    # --- joining --------------------------------------------------------------------------------------------

    def join(self, joining: Joining, now_ms: int, out: Decision) -> None:
        """Handle a JoinGroup request: answers immediately, or when the rebalance completes. Raises RequestError."""
        out.is_ahead = True
        request = joining.request
        protocols = [(protocol.name, protocol.metadata) for protocol in request.protocols]
        if not self._has_room_for(request.member_id):
            if request.member_id in self.pending:
                self._drop_pending(request.member_id, now_ms, out)
            full = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            out.replies.append((joining.waiter, full))
            return
        if not self._accepts(request.protocol_type, protocols):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance = request.group_instance_id
        if not request.member_id:
            if instance is not None and instance in self.static_ids:
                self._replace_static(joining, protocols, now_ms, out)
            elif instance is None and joining.known_id_required:
                self.pending.add(joining.new_member_id)
                out.timers[("session", self.id, joining.new_member_id)] = now_ms + request.session_timeout_ms
                out.replies.append(
                    (
                        joining.waiter,
                        JoinGroupResponse(
                            error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=joining.new_member_id
                        ),
                    )
                )
            else:
                self._add(joining, joining.new_member_id, protocols, now_ms, out)
            return
        if request.member_id in self.pending:
            if instance is not None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(joining, request.member_id, protocols, now_ms, out)
            return
        self._rejoin(self.known_member(request.member_id, instance), joining, protocols, now_ms, out)

    def _accepts(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        if not protocol_type or not protocols:
            return False
        if self.state is State.EMPTY:
            return True
        if protocol_type != self.protocol_type:
            return False
        return self.members.shares([name for name, _ in protocols])

    def _has_room_for(self, member_id: str) -> bool:
        """Return whether a member has room: in a rebalance joined members count, else all; an empty group has room."""
        if self.state is State.EMPTY:
            return True
        if self.state is not State.PREPARING_REBALANCE:
            return member_id in self.members or len(self.members) < self.settings.size_max
        joining = self.members.joining
        return member_id in joining or len(joining) < self.settings.size_max

    def _add(
        self, joining: Joining, member_id: str, protocols: list[tuple[str, bytes]], now_ms: int, out: Decision
    ) -> None:
        request = joining.request
        self.pending.discard(member_id)
        member = Member(
            member_id, request.group_instance_id, joining.client_id, joining.client_host,
            request.session_timeout_ms, request.rebalance_timeout_ms, protocols, joined_in=self.generation,
        )  # fmt: skip
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.put(member)
        self.members.joining[member_id] = joining.waiter
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        if self.is_initial:
            self.new_member_added = True
        out.timers[("session", self.id, member_id)] = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._prepare_rebalance(now_ms, out)

    def _rejoin(
        self, member: Member, joining: Joining, protocols: list[tuple[str, bytes]], now_ms: int, out: Decision
    ) -> None:
        unchanged = member.protocols == protocols
        if (self.state is State.COMPLETING_REBALANCE and unchanged) or (
            self.state is State.STABLE and unchanged and member.id != self.leader
        ):
            out.replies.append((joining.waiter, self._joined(member)))
            self.watch_session(member, now_ms, out)
            return
        self._supersede(member, out)
        session_ms, rebalance_ms = joining.request.session_timeout_ms, joining.request.rebalance_timeout_ms
        if not (
            unchanged
            and session_ms == member.session_timeout_ms
            and rebalance_ms == member.rebalance_timeout_ms
        ):
            self.members.put(member.again(member.id, protocols, session_ms, rebalance_ms))
        self.members.joining[member.id] = joining.waiter
        self._prepare_rebalance(now_ms, out)

    def _replace_static(
        self, joining: Joining, protocols: list[tuple[str, bytes]], now_ms: int, out: Decision
    ) -> None:
        """Replace a static member that joined without its member id: it gets a new id, and the old one is fenced."""
        request = joining.request
        instance = request.group_instance_id
        assert instance is not None
        leader_before = self.leader
        former_id = self.static_ids[instance]
        join_waiter, sync_waiter = self.members.joining.get(former_id), self.members.syncing.get(former_id)
        if join_waiter is not None:
            fenced = JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=former_id)
            out.replies.append((join_waiter, fenced))
        if sync_waiter is not None:
            out.replies.append((sync_waiter, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)))
        was_leader = self.leader == former_id
        member = self.members.take(former_id).again(
            joining.new_member_id, protocols, request.session_timeout_ms, request.rebalance_timeout_ms
        )
        if former_id in self.synced:
            self.synced.remove(former_id)
            self.synced.add(member.id)
        if former_id in self.assignments:
            self.assignments = {**self.assignments, member.id: self.assignments[former_id]}
        out.timers[("session", self.id, former_id)] = None
        self.members.put(member)
        self.static_ids[instance] = member.id
        if was_leader:
            self.leader = member.id
        if self.state is State.STABLE and self.members.choose_protocol(self.protocol) == self.protocol:
            out.records.append(self.record())
            response = self._joined(member)
            if not joining.can_skip_assignment:
                # an old client must not assign again: told the former leader, it only asks for its own part
                response = self._generation_of(leader_before, is_for_leader=True).joined(member.id)
            else:
                answer = response.response if isinstance(response, LeadersAnswer) else response
                answer.skip_assignment = was_leader
            out.replies.append((joining.waiter, response))
            self.watch_session(member, now_ms, out)
            return
        self.members.joining[member.id] = joining.waiter
        out.timers[("session", self.id, member.id)] = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._prepare_rebalance(now_ms, out)

    def _supersede(self, member: Member, out: Decision) -> None:
        """Answer an older waiting request of a member that has sent a new one."""
        waiter = self.members.joining.pop(member.id, None)
        if waiter is not None:
            superseded = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.id)
            out.replies.append((waiter, superseded))

    # --- rebalancing ----------------------------------------------------------------------------------------

    def begin_rebalance(self, now_ms: int, out: Decision) -> None:
        """Begin a rebalance for an external reason: all members must join again."""
        out.is_ahead = True
        self._prepare_rebalance(now_ms, out)

    def _prepare_rebalance(self, now_ms: int, out: Decision) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            self._end_syncs(ErrorCode.REBALANCE_IN_PROGRESS, out)
        if self.state is not State.PREPARING_REBALANCE:
            longest = self.members.longest_rebalance_ms
            delay = self.settings.first_generation_delay_ms
            self.is_initial = self.state is State.EMPTY
            self._enter(State.PREPARING_REBALANCE, now_ms)
            out.timers[("sync", self.id)] = None
            if self.is_initial:
                self.new_member_added = False
                self.initial_delay_left_ms = max(longest - delay, 0)
                out.timers[("join", self.id)] = now_ms + delay
            else:
                out.timers[("join", self.id)] = now_ms + longest
        if not self.is_initial and self._all_joined():
            self._complete_join(now_ms, out)

    def _all_joined(self) -> bool:
        return not self.pending and len(self.members.joining) == len(self.members)

    def join_expired(self, now_ms: int, out: Decision) -> None:
        """Complete the join phase at its timeout."""
        out.is_ahead = True
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self.is_initial and self.new_member_added and self.initial_delay_left_ms:
            delay = min(self.settings.first_generation_delay_ms, self.initial_delay_left_ms)
            self.initial_delay_left_ms -= delay
            self.new_member_added = False
            out.timers[("join", self.id)] = now_ms + delay
            return
        self._complete_join(now_ms, out)

    def _complete_join(self, now_ms: int, out: Decision) -> None:
        """Begin a new generation with the members that have joined."""
        self.is_initial = False
        joining = self.members.joining
        if len(joining) < len(self.members):
            late = [
                member
                for member in self.members.values()
                if member.id not in joining and member.instance_id is None
            ]
            self._drop_all(late, out)
        if self.members and not joining:
            out.timers[("join", self.id)] = now_ms + self.members.longest_rebalance_ms
            return
        out.timers[("join", self.id)] = None
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self._enter(State.EMPTY, now_ms)
            out.records.append(self.record())
            return
        if self.leader not in joining:
            self.leader = next(iter(joining))
        self.protocol = self.members.choose_protocol()
        self._enter(State.COMPLETING_REBALANCE, now_ms)
        self.synced = set()
        generation = self._generation_of(self.leader, is_for_leader=True)
        self._answer_all(self.members.end_joins(), generation.joined, out)
        self.watch_sessions_of(generation.members, now_ms, out)
        out.timers[("sync", self.id)] = now_ms + self.members.longest_rebalance_ms

    def _answer_all(self, waiting: Mapping[str, int], reply: Callable[[str], Any], out: Decision) -> None:
        """Answer each waiter with the `reply` for its member, after the event if there are many."""
        if len(waiting) >= MANY_MEMBERS:
            out.many_replies.append(ManyReplies(waiting, reply))
        else:
            out.replies += [(waiter, reply(member_id)) for member_id, waiter in waiting.items()]

    def _generation_of(self, leader: str | None, *, is_for_leader: bool) -> Generation:
        members = self.members.values() if is_for_leader else ()
        return Generation(self.generation, self.protocol_type, self.protocol, leader, members)

    def _joined(self, member: Member) -> JoinGroupResponse | LeadersAnswer:
        return self._generation_of(self.leader, is_for_leader=member.id == self.leader).joined(member.id)

    # --- syncing --------------------------------------------------------------------------------------------

    def sync(
        self,
        request: SyncGroupRequest,
        waiter: int,
        now_ms: int,
        out: Decision,
        assigned: Mapping[str, bytes] | None = None,
    ) -> None:
        """Handle a SyncGroup request: answers when the leader has assigned. Raises RequestError.

        `assigned` has the request's assignments by member, if they are so many that the caller has indexed them.
        """
        out.is_ahead = True
        member = self.known_member(request.member_id, request.group_instance_id)
        if request.generation_id != self.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        if (request.protocol_type not in (None, self.protocol_type)) or (
            request.protocol_name not in (None, self.protocol)
        ):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is State.PREPARING_REBALANCE:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.watch_session(member, now_ms, out)
        self.synced.add(member.id)
        if len(self.synced) == len(self.members):
            out.timers[("sync", self.id)] = None
        if self.state is State.STABLE:
            out.replies.append((waiter, self._synced(member)))
            return
        if (before := self.members.syncing.get(member.id)) is not None:
            # a repeated request, most likely on another connection
            out.replies.append((before, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
        self.members.syncing[member.id] = waiter
        if member.id == self.leader and self.writing != self.generation:
            if assigned is None:
                assigned = {entry.member_id: entry.assignment for entry in request.assignments}
            member_ids = assigned.keys() & self.members.keys()
            self.assignments = {member_id: assigned[member_id] for member_id in member_ids}
            if self._is_large():
                self.writing = self.generation
                out.effects.append(self._record_needed(now_ms))
            else:
                self._become_stable(now_ms, out)
                out.records.append(self.record())

    def _is_large(self) -> bool:
        """Return whether the record of the generation is too long to be encoded within an event."""
        if len(self.members) >= MANY_MEMBERS:
            return True
        protocol = self.protocol or ""
        assignment_bytes = sum(len(assignment) for assignment in self.assignments.values())
        metadata_bytes = sum(len(member.metadata_for(protocol)) for member in self.members.values())
        return assignment_bytes + metadata_bytes >= LARGE_RECORD_BYTES

    def _record_needed(self, now_ms: int) -> RecordNeeded:
        value = self.metadata_of(now_ms, [])
        return RecordNeeded(
            self.id,
            self.generation,
            value,
            self.members.values(),
            self.assignments,
            self.settings.record_versions,
        )

    def is_written_as(self, generation: int) -> bool:
        """Return whether a generation that is encoded outside the event is still current, and its members wait for it."""
        return self.state is State.COMPLETING_REBALANCE and self.generation == generation == self.writing

    def assigned(self, generation: int, now_ms: int, out: Decision) -> None:
        """Send the members of a large generation their assignments, once its record is in the log."""
        if self.is_written_as(generation):
            out.is_ahead = True
            self._become_stable(now_ms, out)

    def not_assigned(self, generation: int, code: int, now_ms: int, out: Decision) -> None:
        """Fail the members that wait for a large generation that cannot be written: all must join again, as in Kafka."""
        if self.is_written_as(generation):
            out.is_ahead = True
            self._end_syncs(code, out)
            self._prepare_rebalance(now_ms, out)

    def _become_stable(self, now_ms: int, out: Decision) -> None:
        """Send their assignments to all members that wait for them."""
        self._enter(State.STABLE, now_ms)
        waiting = self.members.end_syncs()
        kind, protocol, assignments = self.protocol_type, self.protocol, self.assignments
        self._answer_all(
            waiting,
            lambda member_id: SyncGroupResponse(
                protocol_type=kind, protocol_name=protocol, assignment=assignments.get(member_id, b"")
            ),
            out,
        )
        self.watch_sessions_of([self.members[member_id] for member_id in waiting], now_ms, out)

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=self.assignments.get(member.id, b""),
        )

    def _end_syncs(self, code: int, out: Decision) -> None:
        self.assignments = {}
        self._answer_all(self.members.end_syncs(), lambda _: SyncGroupResponse(error_code=code), out)

    def sync_expired(self, now_ms: int, out: Decision) -> None:
        """Remove the members that have not synced in time."""
        out.is_ahead = True
        if self.state in (State.COMPLETING_REBALANCE, State.STABLE):
            late = [member for member in self.members.values() if member.id not in self.synced]
            self._drop_all(late, out)
            if late:
                self._prepare_rebalance(now_ms, out)

    # --- staying and leaving --------------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, out: Decision
    ) -> None:
        """Handle a heartbeat. Raises RequestError: REBALANCE_IN_PROGRESS while members must join again."""
        member = self.known_member(member_id, instance_id)
        if generation != self.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        self.watch_session(member, now_ms, out)

    def session_expired(self, member_id: str, now_ms: int, out: Decision) -> None:
        """Remove a member without heartbeats for its session timeout."""
        out.is_ahead = True
        if member_id in self.pending:
            self._drop_pending(member_id, now_ms, out)
            return
        member = self.members.get(member_id)
        if member is None:
            return
        waits = member_id in self.members.syncing or member_id in self.members.joining
        if waits and member.joined_in != self.generation:
            # it waits for this group, not vice versa; but a new member may be gone, as its client has no member id to
            # return with
            self.watch_session(member, now_ms, out)
            return
        self._drop(member, out)
        self._member_gone(now_ms, out)

    def leave(self, member_id: str, instance_id: str | None, out: Decision) -> None:
        """Return the member that leaves, named by its id or instance id; `members_left` must follow.

        Raises RequestError.
        """
        out.is_ahead = True
        if instance_id is not None and not member_id:
            member_id = self.static_ids.get(instance_id, "")
        if member_id in self.pending:
            self.pending.discard(member_id)
            out.timers[("session", self.id, member_id)] = None
        else:
            self._drop(self.known_member(member_id, instance_id), out)

    def members_left(self, now_ms: int, out: Decision) -> None:
        """Remove members that leave together, and rebalance."""
        out.is_ahead = True
        self._member_gone(now_ms, out)

    def _drop_pending(self, member_id: str, now_ms: int, out: Decision) -> None:
        """Stop waiting for a client that was given an id; it was no member, so nothing else changes."""
        self.pending.discard(member_id)
        out.timers[("session", self.id, member_id)] = None
        if self.state is State.PREPARING_REBALANCE:
            self._member_gone(now_ms, out)

    def _drop(self, member: Member, out: Decision) -> None:
        out.timers[("session", self.id, member.id)] = None
        join_waiter, sync_waiter = self.members.joining.get(member.id), self.members.syncing.get(member.id)
        self.members.take(member.id)
        self.synced.discard(member.id)
        if member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.leader == member.id:
            self.leader = self.members.first_id()
        if join_waiter is not None:
            out.replies.append((join_waiter, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        if sync_waiter is not None:
            out.replies.append((sync_waiter, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))

    def _drop_all(self, members: Sequence[Member], out: Decision) -> None:
        """Remove the members without a waiting request."""
        if len(members) < MANY_MEMBERS:
            for member in members:
                self._drop(member, out)
            return
        group_id = self.id
        out.many_timers.append((("session", group_id, member.id), None) for member in members)
        self.members.drop(members)
        for member in members:
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
        if self.leader not in self.members:
            self.leader = self.members.first_id()

    def _member_gone(self, now_ms: int, out: Decision) -> None:
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms, out)
        elif self.state is State.PREPARING_REBALANCE and not self.is_initial and self._all_joined():
            self._complete_join(now_ms, out)

    def _enter(self, state: State, now_ms: int) -> None:
        self.state, self.state_since_ms = state, now_ms

    def watch_sessions(self, now_ms: int, out: Decision) -> None:
        """Start every member's session timeout after a load; if the group is too large now, members must rejoin."""
        self.watch_sessions_of(self.members.values(), now_ms, out)
        if len(self.members) > self.settings.size_max:
            self._prepare_rebalance(now_ms, out)
