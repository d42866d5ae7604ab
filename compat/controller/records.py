"""The records written for each request, as Kafka's own tool shows them in both logs.

The rule: records and their batches are compared field by field; a random id is replaced by the name of its entity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from barnabas.log.format.properties import MetaProperties, encode_uuid
from barnabas.records.batch import iter_batches
from compat.controller.sides import ControllerSide
from compat.kit.forms import is_near
from compat.metadata.dumps import Shown, kafka_dump

Marks = Sequence[tuple[str, int]]
"""Labels of requests, each with the end of the log after it."""
BY_NAME = ("endPoints", "features")
"""Lists that a controller of Kafka's has from a hash table, in any order."""
ORDERED_BY = {
    "PartitionChange": ("topicId", "partitionId"),
    "RemoveAccessControlEntry": ("id",),
    "RemoveTopic": ("topicId",),
    "Config": ("resourceType", "resourceName", "name"),
}
"""Fields that records are about, by type."""
_TIME = re.compile(r"\w+Timestamp")


def records_by_label(version: str, side: ControllerSide, marks: Marks) -> dict[str, list[Any]]:
    """Return the records written for each request, without random values, and the record counts of their batches."""
    segments = sorted(side.metadata_dir.glob("*.log"))
    shown = [record for records in kafka_dump(version, segments).values() for record in records]
    names: dict[Any, str] = {**_names(shown), **side.ports}
    meta = MetaProperties.decode((side.metadata_dir.parent / "meta.properties").read_bytes())
    if meta.directory_id is not None:
        names[encode_uuid(meta.directory_id)] = "dir of the controller"
    labels = _labels(marks)
    epochs: dict[int, str] = {}
    records: dict[str, list[Any]] = {}
    for record in shown:
        label = labels(record.offset)
        fields = _form("", _epochs(record, epochs), names)
        records.setdefault(f"{label}: records", []).append({"Type": record.type, **fields})
    by_label: dict[str, list[Any]] = {label: _in_order(entries) for label, entries in records.items()}
    for segment in segments:
        for _, header in iter_batches(segment.read_bytes()):
            if header.is_control:
                continue
            label = labels(header.base_offset)
            by_label.setdefault(f"{label}: batches", []).append(header.records_count)
    return by_label


def _in_order(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records; successive records of a type are sorted by their entity where Kafka's order is random."""
    ordered: list[dict[str, Any]] = []
    for kind, entries in groupby(records, key=itemgetter("Type")):
        several = list(entries)
        if kind in ORDERED_BY:
            several.sort(key=itemgetter(*ORDERED_BY[kind]))
        ordered += several
    return ordered


def _epochs(record: Shown, epochs: dict[int, str]) -> dict[str, Any]:
    """Return the fields of a record, with a broker's epoch as that of a registration: it is an offset of the log."""
    epoch = record.fields.get("brokerEpoch")
    if epoch is None:
        return record.fields
    if record.type == "RegisterBroker" and epoch not in epochs:
        count = sum(f"of broker {record.fields['brokerId']} " in text for text in epochs.values())
        epochs[epoch] = f"epoch {count} of broker {record.fields['brokerId']} "
    return {**record.fields, "brokerEpoch": epochs.get(epoch, epoch)}


def _labels(marks: Marks) -> Any:
    ends = [(end, label) for label, end in marks if end >= 0]

    def label_of(offset: int) -> str:
        return next((label for end, label in ends if offset < end), "at the end")

    return label_of


def _names(shown: Iterable[Shown]) -> Mapping[str, str]:
    """Return the names of entities by their random ids."""
    names: dict[str, str] = {}
    for record in shown:
        fields = record.fields
        if record.type == "Topic":
            names.setdefault(fields["topicId"], f"id of {fields['name']}")
        elif record.type == "AccessControlEntry":
            names.setdefault(fields["id"], f"id of ACL {len(names)} of {fields['resourceName']}")
        elif record.type == "DelegationToken":
            names.setdefault(fields["tokenId"], f"id of a token of {fields['owner']}")
        elif record.type == "RegisterController" and fields["controllerId"] == 1:
            names.setdefault(fields["incarnationId"], "process of the controller")
    return names


def _name(entry: Any) -> str:
    return str(entry["name"])


def _form(name: str, value: Any, names: Mapping[Any, str]) -> Any:
    if isinstance(value, dict):
        return {key: _form(key, item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_form(name, item, names) for item in (sorted(value, key=_name) if name in BY_NAME else value)]
    if name == "port":
        return names.get(value, value)
    if isinstance(value, str) and value in names:
        return re.sub(r"ACL \d+ ", "an ACL ", names[value])
    if _TIME.fullmatch(name) and isinstance(value, int) and is_near(value):
        return "a time"
    return value
