"""Changes as JSON lines and back, for stores that keep a journal. Pure.

A line is `{"crc":"<CRC-32C in hex>","n":<number>,"change":...}`, with `"more":true` after the number if what belongs
together goes on in the next line. The checksum is over what follows it and its comma, without the newline. Lines
without a checksum, as they were written first, begin with `{"change":`.

The rule: what an older version could not do without is a kind of its own, not a field more of one that it knows. A line
with the right checksum is as it was written: if it cannot be read, a newer version has written it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.cluster.metadata.change_codec import ChangeCodec
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
from barnabas.cluster.metadata.image import Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.errors import RequestError
from barnabas.records.crc import crc32c

_CRC = b'{"crc":"'
_BODY_AT = len(_CRC) + 10
_OLD = b'{"change":'
KIND_SHOWN: Final = 100


class NewerLineError(ValueError):
    """A line is whole, and of a kind or form that this version does not know."""


class Line(NamedTuple):
    """A line of a journal; its number is -1 if it was written without. `data` is the line with its newline."""

    number: int
    change: Change
    has_more: bool
    data: bytes


def encode_line(number: int, change: Change, *, has_more: bool = False) -> bytes:
    """Return one change as a line with its number and checksum; `has_more` says that the next one belongs to it."""
    more = '"more":true,' if has_more else ""
    body = f'"n":{number},{more}{encode(change)[1:]}'.encode()
    return b'%s%08x",%s\n' % (_CRC, crc32c(body), body)


def decode_line(data: bytes) -> Line:
    """Return the line in these bytes, with its newline. Raises ValueError unless it is sound, NewerLineError if it is and
    cannot be read.

    Where nothing but the newline is damaged, the checksum shows that the rest is sound.
    """
    is_old = data.startswith(_OLD)
    if is_old and not data.endswith(b"\n"):
        raise ValueError("a line without its end")
    text = data[:-1]
    if not is_old:
        body = text[_BODY_AT:]
        if text[:_BODY_AT] != b'%s%08x",' % (_CRC, crc32c(body)):
            raise ValueError("a line that does not match its checksum")
        text = b"{" + body
    try:
        fields = json.loads(text)
        whole = data[:-1] + b"\n"
        return Line(fields.get("n", -1), _change(fields), fields.get("more", False), whole)
    except (KeyError, TypeError, AttributeError, ValueError, RequestError) as error:
        if is_old:
            raise ValueError(f"a line that no version wrote: {error!r}") from error
        raise NewerLineError(_kind_in(text)) from error


def _kind_in(text: bytes) -> str:
    """Return the kind of change that a line names, as it is shown."""
    try:
        kind = json.loads(text)["change"]
    except (ValueError, KeyError, TypeError):
        return "unknown"
    return repr(kind)[:KIND_SHOWN]


def encode(change: Change) -> str:
    """Return one change as one line of JSON, without the newline. Raises TypeError for a kind that is not kept."""
    name = type(change).__name__
    codec = _codec(name)
    if codec is None:
        raise TypeError(f"{name} is not kept: it is true only while a broker runs")
    return json.dumps({"change": name, **codec.body(change)}, separators=(",", ":"))


def _change(body: dict[str, Any]) -> Change:
    """Return the change in a line's object. Raises ValueError, KeyError or TypeError for what `encode` never wrote."""
    codec = _codec(body["change"])
    if codec is None:
        raise ValueError(f"unknown change {body['change']!r}")
    change: Change = codec.change(body)
    return change


def _topic_created(body: dict[str, Any]) -> TopicCreated:
    return TopicCreated(TopicInfo(body["name"], bytes.fromhex(body["id"]), _partitions(body["partitions"])))


def _partition_changed(body: dict[str, Any]) -> PartitionChanged:
    (partition,) = _partitions([body["partition"]])
    return PartitionChanged(body["name"], body["index"], partition)


def _partition(info: PartitionInfo) -> list[Any]:
    return [info.leader, list(info.replicas), list(info.isr), info.leader_epoch, info.partition_epoch]


def _partitions(rows: list[Any]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(leader, tuple(replicas), tuple(isr), leader_epoch, partition_epoch)
        for leader, replicas, isr, leader_epoch, partition_epoch in rows
    )


_CODECS: Mapping[str, ChangeCodec[Any]] = {
    codec.kind.__name__: codec
    for codec in (
        ChangeCodec(
            TopicCreated,
            lambda change: {
                "name": change.topic.name,
                "id": change.topic.id.hex(),
                "partitions": [_partition(partition) for partition in change.topic.partitions],
            },
            _topic_created,
        ),
        ChangeCodec(
            PartitionsAdded,
            lambda change: {
                "name": change.name,
                "partitions": [_partition(partition) for partition in change.partitions],
            },
            lambda body: PartitionsAdded(body["name"], _partitions(body["partitions"])),
        ),
        ChangeCodec(
            PartitionChanged,
            lambda change: {
                "name": change.name,
                "index": change.index,
                "partition": _partition(change.partition),
            },
            _partition_changed,
        ),
        ChangeCodec(
            EpochBegun, lambda change: {"epoch": change.epoch}, lambda body: EpochBegun(body["epoch"])
        ),
        ChangeCodec(
            TopicDeleted, lambda change: {"name": change.name}, lambda body: TopicDeleted(body["name"])
        ),
        ChangeCodec(
            ConfigChanged,
            lambda change: {
                "type": change.resource_type,
                "name": change.resource_name,
                "settings": dict(change.settings),
            },
            lambda body: ConfigChanged(body["type"], body["name"], tuple(body["settings"].items())),
        ),
        ChangeCodec(
            ProducerIdsAllocated,
            lambda change: {"next_id": change.next_id},
            lambda body: ProducerIdsAllocated(body["next_id"]),
        ),
        ChangeCodec(
            LogDirsRegistered,
            lambda change: {
                "broker": change.broker_id,
                "dirs": sorted(directory_id.hex() for directory_id in change.directory_ids),
            },
            lambda body: LogDirsRegistered(body["broker"], frozenset(map(bytes.fromhex, body["dirs"]))),
        ),
    )
}
"""The kinds of change that are kept, by name, beside those of `access_encoding`."""


def _codec(name: str) -> ChangeCodec[Any] | None:
    codec = _CODECS.get(name)
    if codec is None:
        from barnabas.cluster.metadata.access_encoding import CODECS

        codec = CODECS.get(name)
    return codec


def changes_of(whole: ClusterImage) -> list[Change]:
    """Return the changes that lead from nothing to this image: a snapshot in the journal's own terms."""
    changes: list[Change] = [EpochBegun(whole.latest_epoch)] if whole.latest_epoch else []
    changes += [TopicCreated(topic) for topic in whole.topics.values()]
    changes += [
        ConfigChanged(kind, name, tuple(settings.items())) for (kind, name), settings in whole.configs.items()
    ]
    if whole.next_producer_id:
        changes.append(ProducerIdsAllocated(whole.next_producer_id))
    changes += [LogDirsRegistered(broker_id, ids) for broker_id, ids in whole.log_dirs.items()]
    if whole.scram or whole.tokens or whole.quotas or whole.acls.count:
        from barnabas.cluster.metadata.access_encoding import changes_of as access_changes_of

        changes += access_changes_of(whole)
    return changes
