"""The two tools' output as the same values: per file a list of entries, each a dictionary.

The rule: names and forms are those of Kafka's tool; ours are translated, theirs only parsed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from barnabas.testing.running import import_path
from compat.kafka import release, tool_command

ROOT = Path(__file__).resolve().parents[2]
Entry = dict[str, Any]
TOOL_TIMEOUT_S = 300
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}

_PAIR = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(r"\| offset: .*?(?= headerKeys: )")
# How Kafka 3.9 shows what is in __transaction_state.
_OLD_PAIR = re.compile(
    r"(transactionalId|producerId|producerEpoch|txnTimeoutMs|txnLastUpdateTimestamp)[:=]([^,]+)"
)
_OLD_NAMES = {
    "txnTimeoutMs": "transactionTimeoutMs",
    "txnLastUpdateTimestamp": "transactionLastUpdateTimestampMs",
}
_HEADERS = re.compile(r" headerKeys: \[(.*?)\]")
_REST = re.compile(r" headerKeys: \[.*?\](?: key: (.*?))?(?: payload: (.*))?$", re.DOTALL)
_SKIPPED = re.compile(r"(Log starting offset:|Snapshot end offset:|.* is empty\.$|\s*$)")
_COMPLAINT = re.compile(r"(Found|Mismatch|Non-secutive|Could not|Index)", re.IGNORECASE)


def files_of(log_dir: Path) -> list[Path]:
    """All segment files of all partitions."""
    return sorted(path for path in log_dir.glob("*-*/*") if path.suffix in SUFFIXES)


# --- Kafka's ---------------------------------------------------------------------------------------------------------


def kafka_dump(version: str, files: Iterable[Path], topic: str = "") -> dict[Path, list[Entry]]:
    """Entries of `kafka-dump-log` for each file; its complaints are entries of their own."""
    decoder = [DECODERS[topic]] if topic in DECODERS else []
    command = tool_command(
        release(version), "dump-log", "--deep-iteration", "--print-data-log", *decoder,
        "--files", ",".join(map(str, files)),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"kafka-dump-log failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    entries_by_file: dict[Path, list[Entry]] = {}
    entries: list[Entry] = []
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            entries = entries_by_file.setdefault(Path(line.removeprefix("Dumping ")), [])
        elif line.startswith("| "):
            entries.append(_kafka_record(line))
        elif _COMPLAINT.match(line):
            entries.append({"complaint": line})
        elif not _SKIPPED.match(line):
            entries.append(dict(_PAIR.findall(line)))
    return entries_by_file


def _kafka_record(line: str) -> Entry:
    head = _RECORD.match(line)
    assert head is not None, line
    entry: Entry = dict(_PAIR.findall(head[0]))
    headers = _HEADERS.search(line)
    assert headers is not None, line
    entry["headerKeys"] = headers[1]
    if "endTxnMarker" in line:
        entry |= dict(_PAIR.findall(line[headers.end() :]))
        return entry
    rest = _REST.search(line)
    assert rest is not None, line
    entry["key"], entry["payload"] = rest[1], rest[2]
    return entry


# --- ours ------------------------------------------------------------------------------------------------------------


def barnabas_rows(*arguments: str) -> tuple[int, list[Entry]]:
    """Run `barnabas log`: exit code and rows."""
    command, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "log", command, "--json", *rest],
        capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False, env={"PYTHONPATH": import_path()},
    )  # fmt: skip
    if done.returncode > 1:
        raise RuntimeError(f"barnabas log {command} failed: {done.stderr}")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def barnabas_dump(directory: Path) -> dict[Path, list[Entry]]:
    """Entries of `barnabas log dump --deep` for each file of a partition, as Kafka's tool would say it."""
    entries_by_file: dict[Path, list[Entry]] = {}
    entries: list[Entry] = []
    time_name = ""
    for row in barnabas_rows("dump", "--deep", str(directory))[1]:
        kind = row["kind"]
        if kind == "file":
            entries = entries_by_file.setdefault(Path(row["path"]), [])
            continue
        if kind == "batch":
            time_name = {"create_time": "CreateTime", "log_append_time": "LogAppendTime"}[
                row["timestamp_type"]
            ]
        translate = _TRANSLATORS.get(kind)
        entries.append({"complaint": row} if translate is None else translate(row, time_name))
    return entries_by_file


def _batch(row: Entry, time_name: str) -> Entry:
    horizon = row["delete_horizon_ms"]
    return _texts(
        baseOffset=row["base_offset"], lastOffset=row["last_offset"], count=row["count"],
        baseSequence=row["base_sequence"], lastSequence=row["last_sequence"], producerId=row["producer_id"],
        producerEpoch=row["producer_epoch"], partitionLeaderEpoch=row["leader_epoch"],
        isTransactional=row["transactional"], isControl=row["control"],
        deleteHorizonMs="OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        position=row["position"], size=row["size"], magic=row["magic"], compresscodec=row["codec"], crc=row["crc"],
        isvalid=True, **{time_name: row["max_timestamp"]},
    )  # fmt: skip


def _record(row: Entry, time_name: str) -> Entry:
    entry = _texts(
        offset=row["offset"], keySize=row["key_size"], valueSize=row["value_size"], sequence=row.get("sequence", -1),
        headerKeys=",".join(name for name, _ in row.get("headers", ())), **{time_name: row["timestamp"]},
    )  # fmt: skip
    if "control" in row:
        return entry | _texts(endTxnMarker=row["control"].upper(), coordinatorEpoch=row["coordinator_epoch"])
    if "type" in row:
        return entry | {"type": row["type"], "key": row["key"], "payload": row["value"]}
    return entry | {"key": row["key"], "payload": row["value"]}


def _aborted(row: Entry, _: str) -> Entry:
    return _texts(
        version=0, producerId=row["producer_id"], firstOffset=row["first_offset"], lastOffset=row["last_offset"],
        lastStableOffset=row["last_stable_offset"],
    )  # fmt: skip


def _producer(row: Entry, _: str) -> Entry:
    first = row["current_txn_first_offset"]
    entry = _texts(
        producerId=row["producer_id"], producerEpoch=row["producer_epoch"], coordinatorEpoch=row["coordinator_epoch"],
        currentTxnFirstOffset="OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]",
        lastTimestamp=row["timestamp"],
    )  # fmt: skip
    if row["last_sequence"] < 0 and row["last_offset"] < 0:
        return entry
    return entry | _texts(
        firstSequence=row["last_sequence"] - row["offset_delta"], lastSequence=row["last_sequence"],
        lastOffset=row["last_offset"], offsetDelta=row["offset_delta"], timestamp=row["timestamp"],
    )  # fmt: skip


def _texts(**values: Any) -> Entry:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }


_TRANSLATORS = {
    "batch": _batch,
    "record": _record,
    "offset_index_entry": lambda row, _: _texts(offset=row["offset"], position=row["position"]),
    "time_index_entry": lambda row, _: _texts(timestamp=row["timestamp"], offset=row["offset"]),
    "aborted_transaction": _aborted,
    "producer": _producer,
}


# --- internal topics -------------------------------------------------------------------------------------------------


def decoded(text: str | None) -> Any:
    """A key or payload as Kafka's decoders print it: the data without its version; None for a tombstone."""
    if text is None or text == "<DELETE>":
        return None
    if not text.startswith("{"):
        return {_OLD_NAMES.get(name, name): value for name, value in _OLD_PAIR.findall(text)}
    return _leaves(json.loads(text).get("data"))


def camel(value: Any) -> Any:
    """Our fields with Kafka's names."""
    if isinstance(value, dict):
        return {_camel_name(name): camel(inner) for name, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else _leaves(value)


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _leaves(value: Any) -> Any:
    """Return a value with its numbers as text, as Kafka prints some of them so."""
    if isinstance(value, dict):
        return {name: _leaves(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_leaves(inner) for inner in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Yield the places where our value differs from that of Kafka's tool; fields of ours alone are ignored."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name, value in theirs.items():
            yield from differences(ours.get(name), value, f"{at}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        for n, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{at}[{n}]")
    elif ours != theirs:
        yield f"{at}: {ours!r} here, {theirs!r} there"
