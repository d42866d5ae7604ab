"""`python -m compat.stores [SERVER ...]`: see the README beside this file."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer

from barnabas.testing import RunningBroker
from barnabas.testing.running import BrokerFailedError
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError
from barnabas.tiered.stores import open_store
from compat.stores.servers import SERVERS, ServerError, Store, free_port
from tests.support.remote_segments import PARTITION, local_files, remote_segment

SEGMENT_BYTES = 14 << 20
RECORDS = 2000
READY = "bootstrap.servers="
PROGRAM = [sys.executable, "-m", "barnabas"]


class StoreFailedError(Exception):
    """A store has failed a check; the message has the reason."""


def main(argv: Sequence[str]) -> int:
    """Return the exit code: 0 when every row holds for every server."""
    parser = argparse.ArgumentParser(prog="python -m compat.stores", description=__doc__)
    parser.add_argument("servers", metavar="SERVER", nargs="*", default=[*SERVERS], help=", ".join(SERVERS))
    options = parser.parse_args(argv)
    is_failed = False
    for name in options.servers:
        try:
            with tempfile.TemporaryDirectory(prefix="stores-") as folder:
                (Path(folder) / "server").mkdir()
                with SERVERS[name](Path(folder) / "server") as store:
                    for text, row in ROWS.items():
                        directory = Path(folder) / row.__name__
                        directory.mkdir()
                        row(store, directory)
                        print(f"{name}: {text}", flush=True)
        except (StoreFailedError, ServerError, RemoteStorageError, BrokerFailedError) as error:
            is_failed = True
            print(f"{name}: FAILED: {error}", flush=True)
    return 1 if is_failed else 0


def _check(is_so: bool, text: str) -> None:
    if not is_so:
        raise StoreFailedError(text)


# --- segments of tiered storage -------------------------------------------------------------------------------------


def segments(store: Store, directory: Path) -> None:
    """Copy a segment of 14 MiB in chunks, read ranges and indexes, list and delete it."""
    log = Random(2).randbytes(SEGMENT_BYTES)
    bucket = "azure.container.name" if store.backend == "azure" else f"{store.backend}.bucket.name"
    own = {f"storage.{name}": value for name, value in {**store.settings, bucket: "bucket"}.items()}
    plain = {
        **own,
        "storage.backend.class": store.backend,
        "chunk.size": str(4 << 20),
        "key.prefix": "tiered/",
    }
    for settings in (plain, {**plain, "compression.enabled": "true"}):
        files = local_files(directory, log)
        segment = remote_segment(5, 99, size=len(log))
        tier = open_store("aiven", settings)
        segment = replace(segment, custom_metadata=tier.copy(segment, files))
        reader = open_store("aiven", settings)
        for start, length in ((0, 10), ((4 << 20) - 1, 2), (0, len(log)), (len(log) - 3, 50)):
            _check(
                reader.read(segment, start, length) == log[start : start + length],
                f"bytes from {start} differ",
            )
        for kind in (
            IndexKind.OFFSET,
            IndexKind.TIMESTAMP,
            IndexKind.PRODUCER_SNAPSHOT,
            IndexKind.LEADER_EPOCH,
        ):
            reader.read_index(segment, kind)
        _check(list(reader.partitions()) == [PARTITION], "the partition is not listed")
        _check(len(list(reader.objects(PARTITION))) == 3, "there are not three objects")
        tier.copy(segment, files)
        _check(len(list(reader.objects(PARTITION))) == 3, "a second copy adds objects")
        reader.delete(segment)
        reader.delete(segment)
        _check(list(reader.objects(PARTITION)) == [], "objects remain after the deletion")
        try:
            open_store("aiven", settings).read(segment, 0, 1)
        except RemoteObjectNotFoundError:
            continue
        raise StoreFailedError("a deleted segment is read")


def missing_bucket(store: Store, directory: Path) -> None:
    """Write to a bucket that is not there: an error that names it."""
    done = _snapshot(store, "list", store.url.replace("bucket", "another"), is_checked=False)
    _check(
        done.returncode in (0, 1) and "Traceback" not in done.stderr,
        f"the end is {done.returncode}: {done.stderr}",
    )


# --- snapshots ------------------------------------------------------------------------------------------------------


def snapshots(store: Store, directory: Path) -> None:
    """Push a running broker twice and a stopped one, pull and fork them, read each by librdkafka, delete them."""
    control = f"127.0.0.1:{free_port()}"
    settings = {"log.segment.bytes": str(1 << 20), "control.listener": control}
    broker = RunningBroker(settings=settings, data=str(directory / "data"))
    with broker:
        _produce(broker.bootstrap, 0, RECORDS)
        first = _row(store, "push", store.url, "first", "--tag", "good", "--control", control)
        same = _row(store, "push", store.url, "same", "--control", control)
        _check(first["sent_bytes"] > RECORDS * 900, f"the first push sent {first['sent_bytes']} bytes")
        _check(same["sent_bytes"] < 100_000, f"a push without new records sent {same['sent_bytes']} bytes")
        _produce(broker.bootstrap, RECORDS, RECORDS + 10)
    last = _row(store, "push", store.url, "last", "--data", str(directory / "data"))
    _check(bool(last["clean"]), "the data of a stopped broker are not clean")
    _check(last["sent_bytes"] < first["sent_bytes"], "closed segments were sent again")
    _row(store, "pull", store.url, "good", "--data", str(directory / "pulled"))
    with RunningBroker(data=str(directory / "pulled")) as pulled:
        _check_records(pulled.bootstrap, RECORDS)
    with _fork(store) as bootstrap:
        _check_records(bootstrap, RECORDS + 10)
    _check(_row(store, "verify", store.url, "last")["problems"] == 0, "the snapshot is damaged")
    _row(store, "delete", store.url, "first", "same")
    _row(store, "pull", store.url, "--data", str(directory / "again"))
    _row(store, "delete", store.url, "last")
    _check(_snapshot(store, "list", store.url).stdout == "", "snapshots remain")


def _snapshot(
    store: Store, command: str, url: str, *arguments: str, is_checked: bool = True
) -> subprocess.CompletedProcess[str]:
    words = [*PROGRAM, "snapshot", command, url, *arguments, "--json", *_options(store)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    _check(
        not is_checked or done.returncode == 0,
        f"{command} {arguments} ends with {done.returncode}: {done.stderr}",
    )
    return done


def _row(store: Store, command: str, url: str, *arguments: str) -> dict[str, Any]:
    return json.loads(_snapshot(store, command, url, *arguments).stdout.splitlines()[-1])


def _options(store: Store) -> list[str]:
    return [f"--store={name}={value}" for name, value in store.settings.items()]


@contextmanager
def _fork(store: Store) -> Iterator[str]:
    command = [*PROGRAM, "fork", "--from", store.url, *_options(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            _check(READY in line, f"the fork did not start: {line}")
            yield line.partition(READY)[2].split()[0]
        finally:
            process.terminate()


def _produce(bootstrap: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, end):
        producer.produce("orders", str(number).encode().ljust(1000), partition=0)
    _check(producer.flush(60) == 0, "records are not delivered")


def _check_records(bootstrap: str, count: int) -> None:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.subscribe(["orders"])
    numbers = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        numbers.append(int(message.value()))
    consumer.close()
    _check(numbers == [*range(count)], f"{len(numbers)} records are read, and not {count}")


ROWS: dict[str, Callable[[Store, Path], None]] = {
    "segments of tiered storage, plain and compressed": segments,
    "a bucket that is not there": missing_bucket,
    "snapshots of a running and a stopped broker, forked and pulled": snapshots,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
