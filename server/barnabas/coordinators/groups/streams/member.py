"""A member of a streams group. Pure.

The rule: a member is immutable; the replay of its record replaces it by a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinators.groups.epoch_member import EpochMember, changed
from barnabas.coordinators.groups.streams.tasks import Task
from barnabas.wire.generated.records.streams_group_member_metadata import StreamsGroupMemberMetadataValue
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest


@dataclass(frozen=True, slots=True)
class StreamsMember(EpochMember[Task]):
    """A member: its own description, and the tasks that it runs."""

    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] = ()

    def after_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> StreamsMember:
        """Return the member with the fields of a heartbeat; null or -1 leaves a field unchanged.

        For a joining member a null endpoint means that it has none.
        """
        timeout_ms, endpoint, tags = (
            request.rebalance_timeout_ms,
            request.user_endpoint,
            request.client_tags,
        )
        return changed(
            self,
            instance_id=request.instance_id if request.instance_id is not None else self.instance_id,
            rack_id=request.rack_id if request.rack_id is not None else self.rack_id,
            rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else self.rebalance_timeout_ms,
            topology_epoch=request.topology.epoch if request.topology is not None else self.topology_epoch,
            process_id=request.process_id if request.process_id is not None else self.process_id,
            endpoint=(self.endpoint if request.member_epoch else None)
            if endpoint is None
            else (endpoint.host, endpoint.port),
            client_tags=self.client_tags
            if tags is None
            else tuple(sorted((tag.key, tag.value) for tag in tags)),
            client_id=client_id,
            client_host=client_host,
        )

    def wants_the_same(self, other: StreamsMember) -> bool:
        """Return whether two members are the same for an assignor, whatever the client's address and name."""
        return (self.topology_epoch, self.rack_id, self.client_tags, self.process_id) == (
            other.topology_epoch,
            other.rack_id,
            other.client_tags,
            other.process_id,
        )

    # --- as a record ----------------------------------------------------------------------------------------

    def metadata(self) -> StreamsGroupMemberMetadataValue:
        """Return the member's description as the value of a record."""
        value = StreamsGroupMemberMetadataValue
        return value(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None
            if self.endpoint is None
            else value.Endpoint(host=self.endpoint[0], port=self.endpoint[1]),
            client_tags=[value.KeyValue(key=key, value=text) for key, text in self.client_tags],
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """Return the member with the description in a record."""
        endpoint = value.user_endpoint
        return changed(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags=tuple((tag.key, tag.value) for tag in value.client_tags),
        )
