"""Lookup of APIs and record types, and of their codecs.

The rule: a lookup imports only the named module; all others stay unloaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from barnabas.wire.codec import MessageCodec, RecordType
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.index import APIS, RECORDS


class ApiInfo(NamedTuple):
    """Published facts about one API: inclusive ranges of versions and where its code is."""

    key: int
    name: str
    module: str
    request_min_version: int
    request_max_version: int
    response_min_version: int
    response_max_version: int
    flexible_from: int | None
    latest_unstable: bool
    listeners: tuple[str, ...]

    @property
    def max_stable_version(self) -> int:
        """The last version that is not still open to change."""
        return self.request_max_version - self.latest_unstable


_FLEXIBLE_FROM: dict[int, int | None] = {key: row[6] for key, row in APIS.items()}

_codecs: dict[int, tuple[MessageCodec[Any], MessageCodec[Any]]] = {}
_record_types: dict[tuple[str, int], RecordType[Any, Any]] = {}


def keys() -> tuple[int, ...]:
    """Return every published API key, ascending."""
    return tuple(APIS)


def is_known(key: int) -> bool:
    """Return whether Kafka ever published an API with this key."""
    return key in APIS


def info(key: int) -> ApiInfo:
    """Return an API's description. Raises KeyError for an unknown key."""
    return ApiInfo(key, *APIS[key])


def name_of(key: int) -> str:
    """Kafka's name of the API, as in `OffsetCommit`. Raises KeyError for an unknown key."""
    return APIS[key][0]


def module_of(key: int) -> str:
    """Return the name of the generated module, as in `offset_commit`. Raises KeyError for an unknown key."""
    return APIS[key][1]


def key_of(name: str) -> int:
    """Return the key of the API with Kafka's name `name`. Raises KeyError."""
    for key, row in APIS.items():
        if row[0] == name:
            return key
    raise KeyError(name)


def is_flexible(key: int, version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields; false for an unknown key."""
    first = _FLEXIBLE_FROM.get(key)
    return first is not None and version >= first


def codec(key: int) -> tuple[MessageCodec[Any], MessageCodec[Any]]:
    """Return the codecs of requests and responses. Raises KeyError for an unknown key."""
    codecs = _codecs.get(key)
    if codecs is None:
        module = import_module(f"barnabas.wire.generated.{module_of(key)}")
        codecs = _codecs[key] = (module.REQUEST, module.RESPONSE)
    return codecs


def request_codec(key: int) -> MessageCodec[Any]:
    """Return the codec of the API's requests. Raises KeyError for an unknown key."""
    return codec(key)[0]


def response_codec(key: int) -> MessageCodec[Any]:
    """Return the codec of the API's responses. Raises KeyError for an unknown key."""
    codecs = _codecs.get(key)
    return codecs[1] if codecs is not None else codec(key)[1]


def record_type_ids(topic: str) -> tuple[int, ...]:
    """Return the known types of records of an internal topic. Raises KeyError for another topic."""
    return tuple(RECORDS[topic])


def record_type(topic: str, type_id: int) -> RecordType[Any, Any]:
    """Return the codecs of one type of record. Raises DecodeError for a type that was never published."""
    record = _record_types.get((topic, type_id))
    if record is None:
        module = RECORDS[topic].get(type_id)
        if module is None:
            raise DecodeError(f"there is no record type {type_id} in {topic}", "record key", 0)
        record = import_module(f"barnabas.wire.generated.records.{module}").RECORD
        _record_types[topic, type_id] = record
    return record
