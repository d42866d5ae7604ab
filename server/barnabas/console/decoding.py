"""Keys and values of records as a person reads them: JSON, text, hexadecimal, or through a registry of schemas.

The rule: the bytes are somebody else's. What cannot be read as asked is shown in hexadecimal, and what is cut says so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client import ConsumedRecord
    from barnabas.registry.decoding import Deserializer

FORMATS = ("auto", "json", "text", "hex", "registry")
SHOWN_CHARS = 2_000
"""Characters of a key or value in a list; one record by itself is shown with more."""
WHOLE_CHARS = 2_000_000
_FRAMED_BYTES_MIN = 5
_PLAIN_CONTROLS = frozenset("\n\r\t")


class Decoding:
    """Form in which the payloads of one request are shown."""

    def __init__(self, form: str, deserializer: Deserializer | None, chars_max: int = SHOWN_CHARS) -> None:
        self._form = form
        self._deserializer = deserializer
        self._chars_max = chars_max

    async def record(self, record: ConsumedRecord) -> dict[str, Any]:
        """Return a record as JSON."""
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
            "append_time": record.is_append_time,
            "key": await self.payload(record.key),
            "value": await self.payload(record.value),
            "headers": [
                {"name": name.encode("utf-8", "replace").decode(), "value": await self.payload(value)}
                for name, value in record.headers
            ],
        }

    async def payload(self, data: bytes | None) -> dict[str, Any]:
        """Return bytes as a form, their text in it, and their size."""
        if data is None:
            return {"form": "null", "text": "", "size": -1}
        found = await self._with_schema(data)
        if found is None:
            form, text = plain_text(data, self._form)
            found = {"form": form, "text": text}
        text = found["text"]
        found["size"] = len(data)
        if len(text) > self._chars_max:
            found["text"] = text[: self._chars_max]
            found["cut"] = True
        return found

    async def _with_schema(self, data: bytes) -> dict[str, Any] | None:
        is_framed = len(data) >= _FRAMED_BYTES_MIN and not data[0]
        if self._deserializer is None or self._form not in ("auto", "registry") or not is_framed:
            return None
        try:
            decoded = await self._deserializer.decode(data)
        except Exception as error:  # the schema, the registry or the data may be wrong in many ways
            return {"form": "hex", "text": data.hex(" "), "problem": f"{type(error).__name__}: {error}"[:300]}
        if decoded is None:
            return None
        text = json.dumps(decoded.value, ensure_ascii=False, default=str)
        return {"form": decoded.format, "text": text, "schema_id": decoded.schema_id}


def plain_text(data: bytes, form: str) -> tuple[str, str]:
    """Return the form that bytes could be read in, and the text."""
    if form == "hex":
        return "hex", data.hex(" ")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "hex", data.hex(" ")
    if form == "text":
        return "text", text
    if text[:1] in '{["0123456789-tfn' and text:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return "json", text
    if form == "auto" and any(one < " " and one not in _PLAIN_CONTROLS for one in text[:200]):
        return "hex", data.hex(" ")
    return "text", text
