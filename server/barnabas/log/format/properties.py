"""The property files: `meta.properties` of a log dir, `partition.metadata` of a partition, the clean-shutdown
mark.

The rule: unknown keys are kept unchanged: another broker may need them.
"""

import re
from collections.abc import Mapping
from string import hexdigits
from types import MappingProxyType
from typing import NamedTuple

from barnabas.log.format import CorruptFileError
from barnabas.wire.ids import parse_uuid, uuid_text

UUID_SIZE = 16
DAMAGED_CHARACTERS_MAX = 4
_BROKER_EPOCH = re.compile(rb'"brokerEpoch"\s*:\s*(-?\d{1,18})\b')
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def encode_uuid(uuid: bytes) -> str:
    """Write a raw 16 byte uuid as Kafka does: 22 characters of URL-safe base64."""
    assert len(uuid) == UUID_SIZE
    return uuid_text(uuid)


def decode_uuid(text: str) -> bytes:
    """Return the uuid in a file. Raises CorruptFileError."""
    try:
        return parse_uuid(text)
    except ValueError:
        raise CorruptFileError(f"{text!r} is no uuid") from None


class MetaProperties(NamedTuple):
    """Content of a meta.properties file: the cluster and the broker that a log dir belongs to.

    Version 0 is of a broker in a ZooKeeper cluster and has `broker.id`, version 1 has `node.id` (KIP-631). None stands
    for a missing key. `directory_id` (KIP-858) is a raw uuid.
    """

    version: int = 1
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None
    others: Mapping[str, str] = MappingProxyType({})

    def encode(self) -> bytes:
        """Write the file."""
        pairs = dict(self.others)
        if self.cluster_id is not None:
            pairs["cluster.id"] = self.cluster_id
        if self.node_id is not None:
            pairs["node.id" if self.version else "broker.id"] = str(self.node_id)
        if self.directory_id is not None:
            pairs["directory.id"] = encode_uuid(self.directory_id)
        pairs["version"] = str(self.version)
        return encode_properties(pairs)

    @classmethod
    def decode(cls, data: bytes) -> "MetaProperties":
        """Read the file. Raises CorruptFileError."""
        pairs = decode_properties(data)
        version = _int(pairs.pop("version", "0"))
        if version not in (0, 1):
            raise CorruptFileError(f"version {version} of meta.properties is unknown")
        node_id = pairs.pop("node.id" if version else "broker.id", None)
        directory_id = pairs.pop("directory.id", None)
        return cls(
            version,
            pairs.pop("cluster.id", None),
            None if node_id is None else _int(node_id),
            None if directory_id is None else decode_uuid(directory_id),
            pairs,
        )


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Write `partition.metadata` (KIP-516)."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Read the topic id from `partition.metadata`. Raises CorruptFileError."""
    pairs = decode_properties(data)
    if pairs.get("version") != "0":
        raise CorruptFileError(f"version {pairs.get('version')!r} of partition.metadata is unknown")
    topic_id = decode_uuid(pairs.get("topic_id", ""))
    if not any(topic_id):
        raise CorruptFileError("the topic id in partition.metadata is zero")
    return topic_id


def is_damaged_copy(topic_id: bytes, of: bytes) -> bool:
    """Return whether a topic id, as read from a file, is a damaged copy of another id.

    `partition.metadata` has no checksum, and each changed character makes another valid id. Ids are random: those of two
    topics do not agree in all but DAMAGED_CHARACTERS_MAX of their 22 characters.
    """
    pairs = zip(encode_uuid(topic_id), encode_uuid(of), strict=True)
    return topic_id != of and sum(value != other for value, other in pairs) <= DAMAGED_CHARACTERS_MAX


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """Write the file that marks a clean shutdown (KIP-966 put a broker epoch in it)."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch in the mark of a clean shutdown; -1 without an epoch: before Kafka 3.8 the mark is empty."""
    match = _BROKER_EPOCH.search(data)
    return int(match[1]) if match is not None else -1


def encode_properties(pairs: Mapping[str, str]) -> bytes:
    """Write a Java properties file, sorted by key."""
    return "".join(f"{_escape(key, True)}={_escape(pairs[key], False)}\n" for key in sorted(pairs)).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Read a Java properties file: comments, `=`, `:` or blank between key and value, backslash escapes.

    Raises CorruptFileError.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise CorruptFileError("the property file is no text") from None
    pairs = {}
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        pairs[_unescape(line[:end])] = _unescape(rest)
    return pairs


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        joined = lines.pop() + line if continued else line
        continued = (len(joined) - len(joined.rstrip("\\"))) % 2 == 1
        lines.append(joined[:-1] if continued else joined)
    return lines


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or not set(digits) <= set(hexdigits):
                    raise CorruptFileError(f"malformed \\u escape in {text!r}")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)


def _escape(text: str, is_key: bool) -> str:
    out = []
    for at, char in enumerate(text):
        if char in "\\=:#!" or (char == " " and (is_key or not at)):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append("\\" + "tnrf"["\t\n\r\f".index(char)])
        else:
            out.append(char if " " <= char <= "~" else f"\\u{ord(char):04X}")
    return "".join(out)


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptFileError(f"{text!r} is no number") from None
