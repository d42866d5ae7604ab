"""doctor: checks of the prerequisites of a load on this machine, each in one line.

The rule: a check does not need the subject of an earlier one, so a missing package is a line, not a traceback. Files
that it writes are removed.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from barnabas_pipeline.errors import EXIT_DONE, EXIT_INCOMPLETE, WORST_FIRST, PipelineError, UsageError
from barnabas_pipeline.requirements import SPARK, install_command, missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas_pipeline.jobs.load import LoadOptions
    from barnabas_pipeline.lake.iceberg import Lake, Place
    from barnabas_pipeline.log.model import LogOptions

OK, NOTE, PROBLEM, SKIPPED = "ok", "note", "PROBLEM", "skipped"
CONNECT_SECONDS = 5.0
FREE_BYTES_MIN = 1 << 30
FORMATS, HDFS = "formats", "hdfs"
EXTRAS = {FORMATS: ("google.protobuf",), HDFS: ("hdfs_native",)}
"""Packages of other extras, by import name."""
DISTRIBUTIONS = {"google.protobuf": "protobuf"}


class Line(NamedTuple):
    """The result of a check; `exit_code` is that of the job unless another line is worse."""

    name: str
    status: str
    detail: str
    exit_code: int = EXIT_DONE


@dataclass(slots=True)
class Checkup:
    """Subjects of the checks: None or empty where the options do not name them."""

    log: LogOptions | None = None
    topics: tuple[str, ...] = ()
    lake: Lake | None = None
    place_of: Callable[[str], Place] | None = None
    options_of: Callable[[str], LoadOptions] | None = None
    registry: Callable[[], str] | None = None
    extras: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    spark: Callable[[], SparkSession] | None = None


def checks(checkup: Checkup) -> Iterator[Line]:
    """Yield the line of each check, as soon as it is done."""
    yield _run("python", _python)
    yield _run("packages", lambda: _packages(checkup.extras))
    yield _run("java", _java)
    if checkup.jars:
        yield _run("jars", lambda: _jars(checkup.jars))
    yield _run("disk", _disk)
    if checkup.spark is None:
        yield Line("spark", SKIPPED, "no session is started")
    else:
        yield _run("spark", lambda: _spark(checkup.spark))
    if checkup.log is not None:
        yield from _of_cluster(checkup, checkup.log)
    if checkup.registry is not None:
        yield _run("registry", checkup.registry)
    if checkup.lake is not None:
        yield from _of_lake(checkup, checkup.lake)


def exit_code(lines: Iterable[Line]) -> int:
    """Return the exit code of the worst line."""
    return min((line.exit_code for line in lines), key=_rank, default=EXIT_DONE)


def _rank(code: int) -> int:
    return WORST_FIRST.index(code) if code in WORST_FIRST else len(WORST_FIRST)


class NoteError(Exception):
    """A check found a problem that does not stop a load."""


def _run(name: str, check: Callable[[], str]) -> Line:
    try:
        return Line(name, OK, check())
    except NoteError as error:
        return Line(name, NOTE, str(error))
    except PipelineError as error:
        return Line(name, PROBLEM, _one_line(error), error.exit_code)
    except Exception as error:  # any error of the library under check
        return Line(name, PROBLEM, f"{type(error).__name__}: {_one_line(error)}", EXIT_INCOMPLETE)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


# --- this machine ---------------------------------------------------------------------------------------------------


def _python() -> str:
    return f"{platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"


def _packages(extras: Iterable[str]) -> str:
    if lacking := missing():
        raise UsageError(f"{', '.join(lacking)} not installed: {install_command('spark')}")
    held = [f"{name} {_version(name)}" for name in SPARK]
    for extra in extras:
        lacking = [name for name in EXTRAS[extra] if not _is_installed(name)]
        if lacking:
            raise UsageError(f"{', '.join(lacking)} not installed: {install_command(extra)}")
        held += [f"{name} {_version(name)}" for name in EXTRAS[extra]]
    return ", ".join(held)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _version(name: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(name, name).replace("_", "-"))
    except PackageNotFoundError:
        return "of unknown version"


def _java() -> str:
    from barnabas_pipeline.spark.session import java_version

    return java_version()


def _jars(jars: Iterable[str]) -> str:
    from pyspark import __version__ as release

    paths = [path for text in jars for path in text.split(",") if path]
    missing = [
        path
        for path in paths
        if urlsplit(path).scheme in ("", "file") and not Path(urlsplit(path).path).is_file()
    ]
    if missing:
        raise UsageError(f"no such file: {', '.join(missing)}")
    scala = [path for path in paths if "_2.12" in Path(path).name]
    if scala:
        raise UsageError(f"{', '.join(scala)} is for Scala 2.12, Spark {release} has 2.13")
    runtimes = [Path(path).name for path in paths if Path(path).name.startswith("iceberg-spark-runtime-")]
    of_release = f"iceberg-spark-runtime-{'.'.join(release.split('.')[:2])}_"
    others = [name for name in runtimes if not name.startswith(of_release)]
    if others:
        raise UsageError(f"{', '.join(others)} is for another Spark than {release}, which cannot load it")
    return f"{len(paths)} files"


def _disk() -> str:
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    text = f"{free / (1 << 30):.1f} GiB free in {directory}, for what Spark keeps beside"
    if free < FREE_BYTES_MIN:
        raise NoteError(text)
    return text


def _worker(_: int) -> str:
    import pyarrow

    import barnabas_pipeline.lake.task  # noqa: F401 - as a task does

    return f"Python {platform.python_version()}, Arrow {pyarrow.__version__}"


def _spark(create: Callable[[], SparkSession] | None) -> str:
    assert create is not None
    from barnabas_pipeline.jobs.load import collected

    session = create()
    context = session.sparkContext
    workers = set(collected(context.parallelize(range(2), 2).map(_worker)))
    return f"{context.version}, {context.master}, tasks run in {' and '.join(sorted(workers))}"


# --- the cluster and the registry -----------------------------------------------------------------------------------


def _of_cluster(checkup: Checkup, log: LogOptions) -> Iterator[Line]:
    if log.transport == "wire":
        line = _run("broker", lambda: _broker(log))
        yield line
        if line.status == PROBLEM:
            yield from (Line(f"topic {name}", SKIPPED, "no broker answers") for name in checkup.topics)
            return
    for name in checkup.topics:
        yield _run(f"topic {name}", lambda name=name: _topic(log, name))  # type: ignore[misc]


def _broker(log: LogOptions) -> str:
    """Ask for metadata, and connect to each broker at the address that it advertises."""
    from barnabas_pipeline.jobs.sites import Cluster, Site

    site = Site(Cluster("", log.bootstrap, log.client, (), log.isolation), client_id="barnabas-pipeline")
    try:
        described = site.ask(lambda admin: admin.describe_cluster())
    finally:
        site.close()
    unreachable = []
    for broker in described.brokers:
        try:
            socket.create_connection((broker.host, broker.port), CONNECT_SECONDS).close()
        except OSError as error:
            unreachable.append(
                f"broker {broker.broker_id} at {broker.host}:{broker.port} ({error.strerror or error})"
            )
    if unreachable:
        raise PipelineError(
            f"no connection to {', '.join(unreachable)}: advertised.listeners of the broker say so"
        )
    return f"cluster {described.cluster_id} with {len(described.brokers)} brokers, each reachable as it advertises"


def _topic(log: LogOptions, name: str) -> str:
    """Ask for a topic and its offsets, and read a record of it, as a load does."""
    from dataclasses import replace

    from barnabas_pipeline.log.model import OffsetRange
    from barnabas_pipeline.log.transports import open_log

    reader = open_log(replace(log, topic=name))
    try:
        identity, bounds = reader.identity(), reader.bounds()
        for partition, bound in bounds.items():
            if bound.end > bound.start:
                next(iter(reader.read(OffsetRange(partition, bound.end - 1, bound.end))), None)
                break
    finally:
        reader.close()
    count = sum(bound.end - bound.start for bound in bounds.values())
    is_read = "readable" if count else "no records yet: whether they may be read is not known"
    return f"{len(bounds)} partitions, {count:,} offsets, id {identity.topic_id or 'none'}, {is_read}"


# --- the lake -------------------------------------------------------------------------------------------------------


def _of_lake(checkup: Checkup, lake: Lake) -> Iterator[Line]:
    yield _run("store", lambda: _store(lake))
    yield _run("catalog", lambda: _catalog(lake))
    for name in checkup.topics:
        yield _run(f"table of {name}", lambda name=name: _table(checkup, name))  # type: ignore[misc]


def _store(lake: Lake) -> str:
    """Write, list, read and delete an object."""
    from barnabas_pipeline.lake import store
    from barnabas_pipeline.lake.iceberg import store_properties
    from barnabas_pipeline.lake.store import StoreIO, local_path, location_of

    root = location_of(lake.location)
    here = local_path(root)
    if here is not None and not here.exists():
        parent = next(path for path in here.parents if path.exists())
        if not os.access(parent, os.W_OK):
            raise UsageError(f"{here} cannot be made: {parent} is not writable")
        return f"{root} is not there yet, and can be made"
    io = StoreIO(store_properties(lake))
    location, data = f"{root}/_doctor-{uuid.uuid4().hex}", os.urandom(64)
    try:
        store.write(io, location, data)
        if location not in store.names(io, root):
            raise PipelineError(f"{root}: an object that was written is not listed")
        if store.read(io, location) != data:
            raise PipelineError(f"{root}: an object that was written reads differently")
    finally:
        with suppress(FileNotFoundError):
            io.delete(location)
    if here is None:
        return f"{root}: an object was written, listed, read and deleted"
    free = shutil.disk_usage(here).free
    text = f"{root}: an object was written, listed, read and deleted; {free / (1 << 30):.1f} GiB free"
    if free < FREE_BYTES_MIN:
        raise NoteError(text)
    return text


def _catalog(lake: Lake) -> str:
    from barnabas_pipeline.lake.iceberg import check_catalog, explained, is_made, open_catalog

    properties = check_catalog(lake)
    place = lake.place("doctor")
    if not is_made(place):
        return "SQLite in the lake, which the first load makes"
    with explained(f"catalog {lake.catalog}"):
        namespaces = open_catalog(place).list_namespaces()
    kind = properties.get("type") or properties.get("py-catalog-impl") or "as configured"
    names = ", ".join(".".join(name) for name in namespaces[:10])
    return f"{lake.catalog} ({kind}) has {len(namespaces)} namespaces{f': {names}' if names else ''}"


def _table(checkup: Checkup, topic: str) -> str:
    """Check the table of a topic, and the schema that a load would use."""
    from barnabas_pipeline.jobs.load import find_loss
    from barnabas_pipeline.lake.iceberg import check_writable, is_made
    from barnabas_pipeline.lake.table import Table
    from barnabas_pipeline.log.transports import open_log

    assert checkup.place_of is not None
    place = checkup.place_of(topic)
    table = Table(place) if is_made(place) else None
    state = table.state() if table is not None else None
    if checkup.options_of is not None and checkup.log is not None:
        fields = len(checkup.options_of(topic).schema.fields)
        schema = f", schema of {fields} fields"
    else:
        schema = ""
    if table is None or state is None or not state.version:
        return f"{place.name} is not there yet: the first load makes it{schema}"
    check_writable(table.existing)
    _ = table.layout  # its columns are checked
    ends = sum(total.span for total in state.totals.values())
    text = f"{place.name} at version {state.version}, {ends:,} offsets loaded{schema}"
    if checkup.options_of is None or checkup.log is None:
        return text
    log = open_log(checkup.options_of(topic).log)
    try:
        bounds = log.bounds()
        loss = find_loss(state, log.identity(), bounds)
    finally:
        log.close()
    if loss is not None:
        raise loss
    behind = sum(max(0, bound.end - state.ends.get(number, bound.start)) for number, bound in bounds.items())
    return f"{text}, {behind:,} to load"
