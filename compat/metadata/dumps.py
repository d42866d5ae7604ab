"""The records of a metadata log as Kafka's tools and ours show them, in one form.

The rule: names and forms are those of Kafka's tool; ours are translated, theirs only parsed.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compat.kafka import release, tool_command
from compat.log.dumps import barnabas_rows

TOOL_TIMEOUT_S = 300
HIDDEN = "[hidden]"
_HEAD = re.compile(r"\| offset: (\d+) CreateTime: (-?\d+) ")
_DATA = re.compile(r"payload: (\{.*\})$")
_CONTROL = re.compile(r"headerKeys: \[\] (\w+):? (\{.*\})$")
_WORDS = {"KRAFT": "KRaft"}


class Shown(NamedTuple):
    """One record: its type as in `Topic` or `LeaderChange`, and its fields by Kafka's names."""

    offset: int
    timestamp_ms: int
    type: str
    fields: dict[str, Any]


def kafka_dump(version: str, files: Iterable[Path]) -> dict[str, list[Shown]]:
    """The records that `kafka-dump-log --cluster-metadata-decoder` shows, by the name of the file."""
    command = tool_command(
        release(version), "dump-log", "--cluster-metadata-decoder", "--files", ",".join(map(str, files))
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"kafka-dump-log failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return parse_kafka_dump(done.stdout)


def parse_kafka_dump(text: str) -> dict[str, list[Shown]]:
    """The same, from what the tool has printed. Raises ValueError for a record that has another form."""
    dumped: dict[str, list[Shown]] = {}
    records: list[Shown] = []
    for line in text.splitlines():
        if line.startswith("Dumping "):
            records = dumped.setdefault(line.rpartition("/")[2], [])
        elif line.startswith("| "):
            records.append(_kafka_record(line))
    return dumped


def _kafka_record(line: str) -> Shown:
    head = _HEAD.match(line)
    if head is None:
        raise ValueError(f"not a record: {line}")
    offset, timestamp_ms = int(head[1]), int(head[2])
    if data := _DATA.search(line):
        payload = json.loads(data[1])
        name = "".join(word.capitalize() for word in payload["type"].removesuffix("_RECORD").split("_"))
        return Shown(offset, timestamp_ms, name, {**payload["data"], "version": payload["version"]})
    control = _CONTROL.search(line)
    if control is None:
        raise ValueError(f"neither data nor control: {line}")
    return Shown(offset, timestamp_ms, control[1], json.loads(control[2]))


def barnabas_dump(path: Path) -> dict[str, list[Shown]]:
    """The records that `barnabas log dump --deep` shows of a directory or file, by the name of the file."""
    dumped: dict[str, list[Shown]] = {}
    records: list[Shown] = dumped.setdefault(path.name, [])
    for row in barnabas_rows("dump", "--deep", str(path))[1]:
        if row["kind"] == "file":
            records = dumped.setdefault(row["path"].rpartition("/")[2], [])
        elif row["kind"] == "problem":
            raise ValueError(f"barnabas log dump: {row['text']}")
        elif row["kind"] == "record":
            records.append(_our_record(row))
    return {name: shown for name, shown in dumped.items() if shown}


def _our_record(row: dict[str, Any]) -> Shown:
    fields = _camel(row["value"])
    if "control" in row:
        words = [_WORDS.get(word, word.capitalize()) for word in row["control"].upper().split("_")]
        return Shown(row["offset"], row["timestamp"], "".join(words), fields)
    return Shown(row["offset"], row["timestamp"], row["type"], {**fields, "version": row["version"]})


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel_name(name): _camel(inner) for name, inner in value.items()}
    return [_camel(inner) for inner in value] if isinstance(value, list) else value


def _camel_name(name: str) -> str:
    first, *rest = name.replace("kraft", "k_raft").split("_")
    return first + "".join(word.capitalize() for word in rest)


def differences(theirs: list[Shown], ours: list[Shown]) -> list[str]:
    """Return the differences, a line each. Fields that Kafka omits have their defaults; ours may be hidden, never wrong."""
    lines = []
    if len(theirs) != len(ours):
        lines.append(f"{len(theirs)} records there, {len(ours)} here")
    for their, our in zip(theirs, ours, strict=False):
        if their[:3] != our[:3]:
            lines.append(f"{their[:3]} there, {our[:3]} here")
        lines += [
            f"offset {their.offset} {their.type}: {text}" for text in _of_fields(their.fields, our.fields)
        ]
    return lines


_DEFAULTS = ({}, [], None, 0, -1, -2, "", False, "AAAAAAAAAAAAAAAAAAAAAA")


def _of_fields(theirs: Any, ours: Any) -> list[str]:
    if ours == HIDDEN:
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        lines = [f"{name} is not shown here" for name in theirs if name not in ours]
        for name, value in ours.items():
            if name in theirs:
                lines += [f"{name}: {line}" for line in _of_fields(theirs[name], value)]
            elif value not in _DEFAULTS:
                lines.append(f"{name} is {value} here, not shown there")
        return lines
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [line for pair in zip(theirs, ours, strict=True) for line in _of_fields(*pair)]
    return [] if theirs == ours else [f"{theirs!r} there, {ours!r} here"]
