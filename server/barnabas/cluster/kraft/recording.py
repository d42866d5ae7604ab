"""Changes of a broker's image as records of the metadata log, for a broker without other controllers. Pure.

The rule: `translation` turns the records back into the same image. Each record has the version of the log's
metadata.version, so that Apache Kafka can take the log over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from barnabas.cluster.kraft.controller.versions import SCRAM_LEVEL, TOKENS_LEVEL, newest_version
from barnabas.cluster.kraft.translation import acl_of
from barnabas.cluster.kraft.value_records import broker_record, partition_record, token_record
from barnabas.cluster.kraft.values import RECOVERED, RECOVERING, UNASSIGNED, Broker, Partition
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import Change, Draft, PartitionInfo
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.access_changes import (
        AclAdded,
        AclRemoved,
        ClientQuotaChanged,
        DelegationTokenChanged,
        DelegationTokenRemoved,
        ScramCredentialChanged,
    )
    from barnabas.security.acls import AclBinding


class Recorder:
    """Records of one log. A broker's image has no ids of ACLs: they come from the log, or are derived from the ACL."""

    def __init__(
        self, broker: Broker, level: int, acl_ids: Mapping[AclBinding, bytes] = MappingProxyType({})
    ) -> None:
        """`broker` is the registration, written with the log dirs once they are known; `level` is the log's
        metadata.version.

        `acl_ids` are the ids of the ACLs in the log.
        """
        self._broker = broker
        self._level = level
        self._acl_ids = acl_ids

    def check(self, change: Change) -> None:
        """Raise UNSUPPORTED_VERSION for a change without a record at this level."""
        kind = type(change).__name__
        level = TOKENS_LEVEL if kind in _OF_TOKENS else SCRAM_LEVEL if kind == "ScramCredentialChanged" else 0
        if self._level < level:
            raise RequestError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this needs metadata.version {level}, and the metadata log has {self._level}",
            )

    def records(self, before: Draft, change: Change, next_offset: int) -> Iterable[Any]:
        """Return the records of a change to an image. Raises TypeError for changes that last only while a broker runs."""
        kind = type(change).__name__
        if kind == "LogDirsRegistered":
            return self._log_dirs(change, next_offset)  # type: ignore[arg-type]
        if kind not in _RECORDS:
            raise TypeError(f"{kind} is not kept: it is true only while a broker runs")
        return _RECORDS[kind](self, before, change)

    # --- topics ---------------------------------------------------------------------------------------------

    def _topic_created(self, _before: Draft, change: TopicCreated) -> Iterator[Any]:
        from barnabas.wire.generated.metadata_records.topic import TopicRecord

        topic = change.topic
        yield TopicRecord(topic.name, topic.id)
        yield from self._partitions(topic.id, 0, topic.partitions)

    def _partitions_added(self, before: Draft, change: PartitionsAdded) -> Iterable[Any]:
        topic = before.topics.now[change.name]
        return self._partitions(topic.id, len(before.partitions_of(change.name)), change.partitions)

    def _partition_changed(self, before: Draft, change: PartitionChanged) -> Iterable[Any]:
        return self._partitions(before.topics.now[change.name].id, change.index, (change.partition,))

    def _partitions(self, topic_id: bytes, first: int, infos: Iterable[PartitionInfo]) -> Iterator[Any]:
        version = newest_version("PartitionRecord", self._level)
        for index, info in enumerate(infos, first):
            yield partition_record(topic_id, index, partition_of(info), version)

    def _epoch_begun(self, before: Draft, change: EpochBegun) -> list[Any]:
        """Return the records with which each partition begins an epoch: a short one if it is the next epoch."""
        from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord

        version = newest_version("PartitionRecord", self._level)
        records: list[Any] = []
        for name, topic in before.topics.now.items():
            for index, info in enumerate(before.partitions_of(name)):
                if info.leader_epoch + 1 == change.epoch:
                    records.append(PartitionChangeRecord(index, topic.id, leader=info.leader))
                else:
                    begun = info._replace(leader_epoch=change.epoch, partition_epoch=info.partition_epoch + 1)
                    records.append(partition_record(topic.id, index, partition_of(begun), version))
        return records

    def _topic_deleted(self, before: Draft, change: TopicDeleted) -> list[Any]:
        from barnabas.wire.generated.metadata_records.remove_topic import RemoveTopicRecord

        return [RemoveTopicRecord(before.topics.now[change.name].id)]

    def _config_changed(self, before: Draft, change: ConfigChanged) -> Iterator[Any]:
        from barnabas.wire.generated.metadata_records.config import ConfigRecord

        resource = (change.resource_type, change.resource_name)
        old, new = before.configs.now.get(resource, {}), dict(change.settings)
        for name in old.keys() - new.keys():
            yield ConfigRecord(*resource, name, None)
        for name, value in new.items():
            if old.get(name) != value:
                yield ConfigRecord(*resource, name, value)

    def _producer_ids(self, _before: Draft, change: ProducerIdsAllocated) -> list[Any]:
        from barnabas.wire.generated.metadata_records.producer_ids import ProducerIdsRecord

        return [ProducerIdsRecord(self._broker.id, self._broker.epoch, change.next_id)]

    def _log_dirs(self, change: LogDirsRegistered, next_offset: int) -> list[Any]:
        """Return the registration, as a fenced broker: another process that reads the log must not consider it alive."""
        self._broker = self._broker._replace(
            id=change.broker_id, epoch=next_offset, log_dirs=tuple(sorted(change.directory_ids))
        )
        return [broker_record(self._broker, newest_version("RegisterBrokerRecord", self._level))]

    # --- access ---------------------------------------------------------------------------------------------

    def _acl_added(self, _before: Draft, change: AclAdded) -> list[Any]:
        from barnabas.wire.generated.metadata_records.access_control_entry import AccessControlEntryRecord

        return [AccessControlEntryRecord(self._acl_id(change.acl), *acl_of(change.acl))]

    def _acl_removed(self, _before: Draft, change: AclRemoved) -> list[Any]:
        from barnabas.wire.generated.metadata_records.remove_access_control_entry import (
            RemoveAccessControlEntryRecord,
        )

        return [RemoveAccessControlEntryRecord(self._acl_id(change.acl))]

    def _acl_id(self, acl: AclBinding) -> bytes:
        from hashlib import sha256

        return self._acl_ids.get(acl) or sha256(repr(acl_of(acl)).encode()).digest()[:16]

    def _quotas(self, before: Draft, change: ClientQuotaChanged) -> Iterator[Any]:
        from barnabas.wire.generated.metadata_records.client_quota import ClientQuotaRecord

        entity = [ClientQuotaRecord.EntityData(kind, name) for kind, name in change.entity.parts]
        old, new = before.quotas.now.get(change.entity, {}), dict(change.quotas)
        for name in old.keys() - new.keys():
            yield ClientQuotaRecord(entity, name, 0.0, remove=True)
        for name, value in new.items():
            if old.get(name) != value:
                yield ClientQuotaRecord(entity, name, value)

    def _scram(self, _before: Draft, change: ScramCredentialChanged) -> list[Any]:
        from barnabas.security.scram import MECHANISMS
        from barnabas.wire.generated.metadata_records.remove_user_scram_credential import (
            RemoveUserScramCredentialRecord,
        )
        from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord

        number, credential = MECHANISMS[change.mechanism].type, change.credential
        if credential is None:
            return [RemoveUserScramCredentialRecord(change.user, number)]
        return [
            UserScramCredentialRecord(
                change.user,
                number,
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            )
        ]

    def _token(self, _before: Draft, change: DelegationTokenChanged) -> list[Any]:
        return [token_record(change.token)]

    def _token_removed(self, _before: Draft, change: DelegationTokenRemoved) -> list[Any]:
        from barnabas.wire.generated.metadata_records.remove_delegation_token import (
            RemoveDelegationTokenRecord,
        )

        return [RemoveDelegationTokenRecord(change.token_id)]


_OF_TOKENS = ("DelegationTokenChanged", "DelegationTokenRemoved")
_RECORDS: Mapping[str, Callable[..., Iterable[Any]]] = {
    "TopicCreated": Recorder._topic_created,
    "PartitionsAdded": Recorder._partitions_added,
    "PartitionChanged": Recorder._partition_changed,
    "EpochBegun": Recorder._epoch_begun,
    "TopicDeleted": Recorder._topic_deleted,
    "ConfigChanged": Recorder._config_changed,
    "ProducerIdsAllocated": Recorder._producer_ids,
    "AclAdded": Recorder._acl_added,
    "AclRemoved": Recorder._acl_removed,
    "ClientQuotaChanged": Recorder._quotas,
    "ScramCredentialChanged": Recorder._scram,
    "DelegationTokenChanged": Recorder._token,
    "DelegationTokenRemoved": Recorder._token_removed,
}


def partition_of(info: PartitionInfo) -> Partition:
    """Return a partition as in records; unknown log dirs are unassigned."""
    directories = info.directories
    if len(directories) != len(info.replicas):
        directories = (UNASSIGNED,) * len(info.replicas)
    return Partition(
        info.replicas,
        info.isr,
        info.leader,
        info.leader_epoch,
        info.partition_epoch,
        info.removing,
        info.adding,
        RECOVERING if info.recovering else RECOVERED,
        directories,
        info.elr,
        info.last_known_elr,
    )
