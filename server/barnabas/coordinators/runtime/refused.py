"""Records of an internal topic that a replay skips: their place and the reason, in the log."""

from __future__ import annotations

import logging

from barnabas.coordinators.statemachine.decision import Entry
from barnabas.wire.codec import KEY_TYPE_SIZE, record_type_id
from barnabas.wire.registry import record_type_ids

log = logging.getLogger(__name__)


def refuse(topic: str, partition: int, entry: Entry, index: int, why: object) -> None:
    """Log that a record, or the marker, of an entry changes nothing. Records of a newer version are no error."""
    where = f"offset {entry.offsets[index]}" if entry.offsets else "the end"
    key = entry.records[index][0] if entry.records else b""
    if len(key) >= KEY_TYPE_SIZE and (type_id := record_type_id(key)) not in record_type_ids(topic):
        level, why = logging.WARNING, f"its type {type_id} is not known; a newer version may have written it"
    else:
        level, why = logging.ERROR, f"no coordinator can have written it: {why}"
    log.log(
        level, "%s-%d: skipping the record at %s, which changes nothing: %s", topic, partition, where, why
    )
