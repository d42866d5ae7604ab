"""Write fixtures with a Python client: golden_python.py {kafka-python | aiokafka} <dir>."""

import sys
from pathlib import Path

T = 1_700_000_000_000
HEADERS = [("h1", b"a"), ("h2", None), ("ünï", b"")]
RECORDS = [
    (T, b"key-0", b"value-0", HEADERS),
    (T + 5, None, b"v" * 300, []),
    (T - 10, b"tombstone", None, []),
    (T + 70_000, b"", b"", []),
]
LONG_RECORD = (T + 6, b"long", b"0123456789" * 10_000, [])  # spans blocks; only where it is compressed


def records(codec):
    return [*RECORDS, LONG_RECORD] if codec else RECORDS


def kafka_python(magic, codec):
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic, codec, 1 << 20)
    for timestamp, key, value, headers in records(codec):
        assert builder.append(timestamp, key, value, headers if magic == 2 else [])
    builder.close()
    return bytes(builder.buffer())


def aiokafka(magic, codec):
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(records(codec)):
        extra = (headers,) if magic == 2 else ()
        assert builder.append(offset, timestamp, key, value, *extra)
    return bytes(builder.build())


def main():
    make = {"kafka-python": kafka_python, "aiokafka": aiokafka}[sys.argv[1]]
    codecs = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    for magic in (0, 1, 2):
        for codec, name in codecs.items():
            if codec == 4 and magic < 2:
                continue
            try:
                data = make(magic, codec)
            except Exception as error:  # this client cannot do it: no fixture
                print("cannot write", magic, name, repr(error))
                continue
            Path(sys.argv[2], f"v{magic}-{name}.bin").write_bytes(data)


main()
