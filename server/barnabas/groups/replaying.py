"""Replay of the records of one kind of group, by their types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from barnabas.wire.codec import RecordType

G = TypeVar("G")


class Replay(Generic[G]):
    """A kind of group whose records all name their group in `group_id`, and which ends with the tombstone of `epoch`.

    `take_up` has for each type what a record does to its group, given its decoded key, and value or None.
    """

    def __init__(
        self,
        epoch: RecordType[Any, Any],
        apply_record: Iterable[tuple[RecordType[Any, Any], Callable[[G, Any, Any], None]]],
    ) -> None:
        self._epoch = epoch
        self._types = {record_type.type_id: (record_type, changes) for record_type, changes in apply_record}

    def __call__(
        self,
        kind: int,
        key: bytes,
        value: bytes | None,
        find: Callable[[str, bool], G | None],
        end: Callable[[str], None],
    ) -> bool:
        """Replay a record, if it is one of this kind of group; whether it was. Raises DecodeError.

        `find` returns the group of an id; made if the flag says so, otherwise None where there is none of this kind.
        """
        if kind not in self._types:
            return False
        record_type, apply_record = self._types[kind]
        where = record_type.decode_key(key)
        group = find(where.group_id, value is not None)
        if group is not None:
            if record_type is self._epoch and value is None:
                end(where.group_id)
            else:
                apply_record(group, where, None if value is None else record_type.decode_value(value))
        return True
