"""Record batches of every format and compression as JSON.

The rule: the output is bounded in records and in bytes, also decompressed ones; damage is reported at its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.errors import PeerError, RequestError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, check_crc, iter_batches
from barnabas.records.compression import CODEC_NAMES, Codec
from barnabas.records.control import ControlType, parse_type
from barnabas.records.record import Record
from barnabas.tools.inspection.messages import Data, UnreadRecords
from barnabas.wire.regions import FileRegion

RECORDS_MAX = 1000
VALUE_BYTES_MAX = 1000
DECOMPRESSED_BYTES_MAX = 16 << 20


@dataclass(slots=True)
class RecordsView:
    """View of records: the number shown of a partition, and the bytes shown of each key and value."""

    records_max: int = RECORDS_MAX
    value_bytes_max: int = VALUE_BYTES_MAX
    as_hex: bool = False

    def __call__(self, data: Data) -> Any:
        """Return the batches of a partition as JSON."""
        if isinstance(data, FileRegion | UnreadRecords):
            return {"bytes": len(data)}
        records_allowed = self.records_max
        batches: list[Any] = []
        end = 0
        try:
            for position, header in iter_batches(data):
                batch, count = self._batch(data, position, header, records_allowed)
                batches.append(batch)
                records_allowed -= count
                end = position + header.size
                if records_allowed <= 0:
                    break
        except (PeerError, RequestError, ValueError) as error:
            batches.append({"problem": str(error), "bytes": len(data) - end})
            return batches
        if records_allowed <= 0 and end < len(data):
            batches.append({"not_shown": f"{len(data) - end} bytes: {self.records_max} records are shown"})
        elif end < len(data):
            batches.append({"cut_short": f"{len(data) - end} bytes of a batch that is not whole"})
        return batches

    def _batch(self, data: Any, position: int, header: BatchHeader, most: int) -> tuple[dict[str, Any], int]:
        shown = header_as_json(header)
        if not check_crc(data, position, header):
            shown["problem"] = "the checksum is wrong"
        records: list[Any] = []
        try:
            for record in iter_any_records(data, position, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                if len(records) >= most:
                    break
                records.append(self._record(record, is_control=header.is_control and header.magic == 2))
        except (PeerError, RequestError, ValueError) as error:
            shown["problem"] = str(error)
        shown["records"] = records
        return shown, max(1, len(records))

    def _record(self, record: Record, *, is_control: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
        if is_control:
            try:
                shown["control"] = ControlType(parse_type(record.key)).name
            except (PeerError, RequestError, ValueError):
                shown["control"] = "unknown"
            return shown
        shown["key"] = self.text(record.key)
        shown["value"] = self.text(record.value)
        if record.headers:
            shown["headers"] = [
                {
                    "key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                    "value": self.text(value),
                }
                for name, value in record.headers
            ]
        return shown

    def text(self, data: bytes | None) -> Any:
        """Return bytes as text where they are printable UTF-8, otherwise as hex; null as None."""
        if data is None:
            return None
        part = data[: self.value_bytes_max]
        more = f"... ({len(data)} bytes)" if len(part) < len(data) else ""
        if not self.as_hex:
            text: str | None
            try:
                text = part.decode()
            except UnicodeDecodeError as error:
                # a character may be truncated at the end of the shown text
                text = part[: error.start].decode() if more and error.start > len(part) - 4 else None
            if text is not None and all(
                character.isprintable() or character in "\r\n\t" for character in text
            ):
                return text + more
        return {"hex": part.hex() + more}


def header_as_json(header: BatchHeader) -> dict[str, Any]:
    """Return the header of a batch as JSON, without fields that do not apply to it."""
    codec = header.codec
    shown: dict[str, Any] = {
        "base_offset": header.base_offset,
        "magic": header.magic,
        "compression": CODEC_NAMES[Codec(codec)] if codec <= max(Codec) else f"codec {codec}",
        "bytes": header.size,
    }
    if header.magic == 2:
        shown["last_offset"] = header.last_offset
        shown["leader_epoch"] = header.leader_epoch
        shown["count"] = header.records_count
        if header.has_producer_id:
            shown["producer_id"] = header.producer_id
            shown["producer_epoch"] = header.producer_epoch
            shown["base_sequence"] = header.base_sequence
        shown["transactional"] = header.is_transactional
        shown["control"] = header.is_control
    if header.magic:
        shown["timestamp_type"] = header.timestamp_type.name
    return shown


@dataclass(slots=True)
class BatchCount:
    """Counts of a partition's records, without looking into batches."""

    batches: int = 0
    records: int = 0
    """-1 where compressed messages of an old format hide how many there are."""
    size: int = 0
    codecs: frozenset[int] = frozenset()


def count(data: Data | None) -> BatchCount:
    """Count batches and records by the headers of batches, up to the first damage."""
    counts = BatchCount()
    if data is None:
        return counts
    counts.size = len(data)
    if isinstance(data, FileRegion | UnreadRecords):
        return counts
    codecs = set()
    try:
        for _, header in iter_batches(data):
            counts.batches += 1
            codecs.add(header.codec)
            if header.records_count < 0:
                counts.records = -1
            elif counts.records >= 0:
                counts.records += header.records_count
    except (PeerError, RequestError, ValueError):
        pass
    counts.codecs = frozenset(codecs)
    return counts
