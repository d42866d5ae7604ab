"""A member of a consumer group. Pure.

The rule: a member is immutable; the replay of its record replaces it by a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinators.groups.epoch_member import EpochMember, changed
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataValue
from barnabas.wire.topic_partitions import TopicIdPartition

Subscription = tuple[frozenset[str], str]
"""Names of topics, and a regular expression or nothing."""


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """Session timeout and protocols of a member that takes part by JoinGroup and SyncGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def names(self) -> frozenset[str]:
        """The supported assignors."""
        return frozenset(name for name, _ in self.protocols)


@dataclass(frozen=True, slots=True)
class ConsumerMember(EpochMember[TopicIdPartition]):
    """A member: its subscription, its epochs and its partitions."""

    topics: frozenset[str] = frozenset()
    regex: str = ""
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None

    @property
    def subscription(self) -> Subscription:
        """Names of topics, and a regular expression, to which the member is subscribed."""
        return self.topics, self.regex

    @property
    def stale_epoch_error(self) -> ErrorCode:
        """The error code for a request with an outdated epoch; members of the classic protocol have generations."""
        return ErrorCode.STALE_MEMBER_EPOCH if self.classic is None else ErrorCode.ILLEGAL_GENERATION

    def after_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> ConsumerMember:
        """Return the member with the fields of a heartbeat; null or -1 leaves a field unchanged."""
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        return changed(
            self,
            instance_id=_or(request.instance_id, self.instance_id),
            rack_id=_or(request.rack_id, self.rack_id),
            rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else self.rebalance_timeout_ms,
            server_assignor=_or(request.server_assignor, self.server_assignor),
            topics=self.topics if names is None else frozenset(names),
            regex=self.regex if regex is None else regex,
            client_id=client_id,
            client_host=client_host,
            classic=None,
        )

    # --- records --------------------------------------------------------------------------------------------

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        """Return the member's metadata as the value of a record."""
        classic = None
        if self.classic is not None:
            classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[
                    ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in self.classic.protocols
                ],
            )
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=classic,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member with the metadata of a record."""
        classic = None
        if value.classic_member_metadata is not None:
            classic = ClassicProtocols(
                value.classic_member_metadata.session_timeout_ms,
                tuple((p.name, p.metadata) for p in value.classic_member_metadata.supported_protocols),
            )
        return changed(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=classic,
        )


def _or(reported: str | None, current: str | None) -> str | None:
    return current if reported is None else reported
