"""An audit finds every way to tamper with lake, ledger or log, at the level that the case names.

`re_sign` plays a forger: it makes ledger and snapshots fit the files again, and each other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.log.format import checkpoints
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas_pipeline import schema
from barnabas_pipeline.jobs.audit import AuditReport, audit
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake.dead import DeadLetters
from barnabas_pipeline.lake.files import describe
from barnabas_pipeline.lake.iceberg import open_catalog
from barnabas_pipeline.lake.ledger import BrokenLakeError, DataFile, Entry
from barnabas_pipeline.lake.store import local_path, sha256_of
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.schema import EventSchema

from .conftest import SITE, Stream
from .test_lake import options

# --- a lake, tampered with ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(spark: Any, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> LoadOptions:
    """A lake of several commits, with dead letters."""
    loading = options(stream, tmp_path_factory.mktemp("audited"), "logins", offsets_per_commit_max=400)
    load(spark, loading)
    state = Table(loading.root).state()
    assert state.version >= 3
    assert state.dead_version
    return loading


@pytest.fixture
def lake(loaded: LoadOptions, tmp_path: Path) -> Iterator[LoadOptions]:
    """It for one test, which may do to it what it likes: then it is put back."""
    root = Path(str(loaded.root)).parent
    shutil.copytree(root, tmp_path / "backup")
    yield LoadOptions(loaded.log, loaded.root, loaded.schema)
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "backup", root)


def path_of(file: DataFile) -> Path:
    path = local_path(file.path)
    assert path is not None
    return path


def check(spark: Any, loading: LoadOptions, *, deep: bool = False) -> AuditReport:
    return audit(spark, loading, now_ms=SITE.start_ms, lateness_ms=0, deep=deep)


def rewrite(loading: LoadOptions, file: DataFile, change: Callable[[Any], Any]) -> Any:
    path = path_of(file)
    rows = change(pq.ParquetFile(path).read())
    pq.write_table(rows, path)
    return rows


def one_file(loading: LoadOptions) -> DataFile:
    """The largest one."""
    table = Table(loading.root)
    files = table.files().rows
    return max((files[piece.path] for piece in table.pieces()), key=lambda file: file.rows)


def dead_file(loading: LoadOptions) -> DataFile:
    return max(Table(loading.root).files().dead.values(), key=lambda file: file.rows)


def with_column(rows: Any, name: str, values: list[Any]) -> Any:
    index = rows.column_names.index(name)
    return rows.set_column(index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type))


def without_a_row(rows: Any) -> Any:
    return pa.concat_tables([rows.slice(0, 3), rows.slice(4)])


def with_a_row_twice(rows: Any) -> Any:
    return pa.concat_tables([rows, rows.slice(3, 1)])


def with_another_value(rows: Any) -> Any:
    values = rows["member"].to_pylist()
    return with_column(rows, "member", [*values[:3], values[3] + "x", *values[4:]])


def with_another_reason(rows: Any) -> Any:
    return with_column(
        rows, "reason", ["utf8" if reason != "utf8" else "json" for reason in rows["reason"].to_pylist()]
    )


def at_another_offset(rows: Any) -> Any:
    return with_column(rows, "_offset", [*rows["_offset"].to_pylist()[:-1], 10**9])


def re_sign(loading: LoadOptions, edit: Callable[[Entry], None] = lambda _: None) -> None:
    """Make all fit: sizes, digests and counts of the files as they are now, the ledger's chain, snapshots, the catalog."""
    table = Table(loading.root)
    entries = table.entries()
    catalog = open_catalog(table.place)
    for name in (table.place.name, DeadLetters(table).place.name):
        if catalog.table_exists(name):
            catalog.drop_table(name)
    table = Table(loading.root)
    for entry in entries:
        table.prepare(EventSchema.from_dict(entry.schema))
        for file, is_dead in [*((f, False) for f in entry.add), *((f, True) for f in entry.dead_add)]:
            count = pq.read_metadata(path_of(file)).num_rows
            commit = entry.partitions[str(file.partition)]
            more = count - file.rows
            if is_dead:
                commit.dead += more
                file.offsets += more
            else:
                commit.loaded += more
                describe(table.io, table.iceberg.metadata, file)
            commit.compacted -= more
            file.rows = count
            file.size, file.sha256 = sha256_of(table.io, file.path)
        edit(entry)
        entry.previous, entry.previous_path = table.state().digest, table.state().path
        table.commit(entry)


def test_untouched_lake_passes_without_decoding(spark: Any, lake: LoadOptions) -> None:
    report, deep = check(spark, lake), check(spark, lake, deep=True)
    assert report.problems == deep.problems == []
    assert report.rows_decoded == 0
    assert report.rows_compared == deep.rows_compared == deep.rows_decoded == report.offsets
    assert report.loaded + report.dead == report.offsets > 0


TAMPERINGS = {
    "a row is removed": (without_a_row, ["1 rows of the log are not in the lake"]),
    "a row is doubled": (with_a_row_twice, [r"offset \d+ of partition \d is there twice"]),
    "a value is changed": (with_another_value, ["1 rows of the log are altered"]),
    "a row is moved": (
        at_another_offset,
        ["1 rows of the log are not in the lake", "1 rows are at offsets that no load"],
    ),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampered_file_is_reported_with_its_problem(spark: Any, lake: LoadOptions, what: str) -> None:
    change, expected = TAMPERINGS[what]
    file = one_file(lake)
    rewrite(lake, file, change)
    report = check(spark, lake)
    assert_found(report, [f"{file.path} is not as it was written", *expected])
    assert report.sealed == []


def assert_found(report: AuditReport, expected: list[str]) -> None:
    import re

    for pattern in expected:
        assert any(re.match(pattern, problem) for problem in report.problems), (pattern, report.problems)
    assert len(report.problems) == len(expected), report.problems


@pytest.mark.parametrize("what", [name for name in TAMPERINGS if name != "a value is changed"])
def test_missing_and_duplicate_rows_are_found_behind_a_forgery(
    spark: Any, lake: LoadOptions, what: str
) -> None:
    change, expected = TAMPERINGS[what]
    rewrite(lake, one_file(lake), change)
    re_sign(lake)
    report = check(spark, lake)
    assert_found(report, expected)


def test_forged_value_is_found_by_a_deep_audit(spark: Any, lake: LoadOptions) -> None:
    rows = rewrite(lake, one_file(lake), with_another_value)
    re_sign(lake)
    assert check(spark, lake).problems == [], "files, ledger and coordinates fit: this is for --deep"
    report = check(spark, lake, deep=True)
    assert report.problems == ["1 rows of the log are altered"]
    coordinates = [rows[name][3].as_py() for name in ("_topic_partition", "_offset")]
    assert report.missing == [[*coordinates, coordinates[1] + 1]]


@pytest.mark.parametrize("is_covered_up", [False, True])
def test_a_dead_letter_that_is_removed_is_found(spark: Any, lake: LoadOptions, is_covered_up: bool) -> None:
    file = dead_file(lake)
    rewrite(lake, file, lambda rows: rows.slice(1))
    expected = ["1 rows of the log are not in the lake"]
    if is_covered_up:
        re_sign(lake)
    else:
        expected.append(f"{file.path} is not as it was written")
    assert_found(check(spark, lake), expected)


def test_a_dead_letter_that_is_changed_is_found(spark: Any, lake: LoadOptions) -> None:
    file = dead_file(lake)
    rewrite(lake, file, with_another_reason)
    expected = [f"{file.path} is not as it was written", f"{file.rows} rows of the log are altered"]
    assert_found(check(spark, lake), expected)


@pytest.mark.parametrize("how", ["lost", "cut", "junk"])
def test_lost_or_corrupt_file_is_reported_with_its_offsets(spark: Any, lake: LoadOptions, how: str) -> None:
    file = one_file(lake)
    path = path_of(file)
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20] if how == "cut" else b"PAR1" + bytes(100) + b"PAR1")
    report = check(spark, lake)
    finding = (
        f"{file.path} is missing: {file.rows} rows"
        if how == "lost"
        else f"{file.path} is not as it was written"
    )
    assert_found(report, [finding, f"{file.rows} rows of the log are not in the lake"])
    assert report.missing[0][:2] == [file.partition, file.offset_min]


@pytest.mark.parametrize("which", [1, 2])
def test_an_entry_that_is_missing_in_the_chain_is_found(spark: Any, lake: LoadOptions, which: int) -> None:
    path = local_path(Table(lake.root).entries()[which].previous_path)
    assert path is not None
    path.unlink()
    with pytest.raises(BrokenLakeError):
        check(spark, lake)


def test_rolled_back_table_lacks_its_last_offsets(spark: Any, lake: LoadOptions) -> None:
    table = Table(lake.root)
    lost = table.entries()[-1].partitions.values()
    snapshot = table.iceberg.snapshots()[-2]
    table.iceberg.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
    report = check(spark, lake)
    assert report.lag == sum(range_.end - range_.start for range_ in lost) > 0
    assert report.problems == []


def test_wrong_digests_of_entries_cause_decoding(spark: Any, lake: LoadOptions) -> None:
    """Those of a time before digests; and a digest of other batches."""
    for made_up in ("", "0" * 32):

        def change(entry: Entry, made_up: str = made_up) -> None:
            for commit in entry.partitions.values():
                commit.log_digest = made_up

        re_sign(lake, change)
        report = check(spark, lake)
        assert report.problems == []
        assert report.rows_decoded == report.rows_compared == report.offsets


def test_counts_that_lie_are_found(spark: Any, lake: LoadOptions) -> None:
    def change(entry: Entry) -> None:
        for commit in entry.partitions.values() if entry.version == 1 else ():
            commit.loaded -= 1
            commit.aborted += 1

    re_sign(lake, change)
    partitions = len(Table(lake.root).state().ends)
    assert_found(
        check(spark, lake),
        [r"\d+ rows are in the files, \d+ were loaded", *[r"partition \d, offsets"] * partitions],
    )


def test_files_of_several_partitions_are_held_against_each(spark: Any, lake: LoadOptions) -> None:
    compact(spark, lake.root)
    file = one_file(lake)
    assert file.partition == -1
    assert check(spark, lake).problems == []
    rewrite(lake, file, without_a_row)
    assert_found(
        check(spark, lake), [f"{file.path} is not as it was written", "1 rows of the log are not in the lake"]
    )


# --- a log that is not what it was ----------------------------------------------------------------------------------


class Segment:
    """A log dir of one topic and partition, made by hand: batches of ten records."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.directory = self.data / "logins-0"
        self.directory.mkdir(parents=True)
        self.write({})

    def write(self, members: dict[int, str | None], end: int = 50) -> None:
        """Write it; `members` says which records have another member, or are not there."""
        batches = []
        for base in range(0, end, 10):
            records = [
                Record(
                    n,
                    SITE.start_ms,
                    None,
                    b'{"ts":%d,"member":"%s","ip":"i","ok":true}' % (SITE.start_ms, member.encode()),
                )
                for n in range(base, base + 10)
                if (member := members.get(n, "m")) is not None
            ]
            batches.append(encode_batch(records, base_offset=base, last_offset=base + 9))
        (self.directory / f"{0:020d}.log").write_bytes(b"".join(batches))
        self._checkpoint("replication-offset-checkpoint", end)

    def begin_at(self, offset: int) -> None:
        self._checkpoint("log-start-offset-checkpoint", offset)

    def _checkpoint(self, name: str, offset: int) -> None:
        (self.data / name).write_bytes(checkpoints.encode_offsets({("logins", 0): offset}))


@pytest.fixture
def by_hand(spark: Any, tmp_path: Path) -> tuple[Segment, LoadOptions]:
    """Such a log, loaded in commits of twenty offsets."""
    segment = Segment(tmp_path)
    log = LogOptions("logins", "disk", log_dirs=(str(segment.data),))
    loading = LoadOptions(log, str(tmp_path / "lake"), schema.load("logins"), offsets_per_commit_max=20)
    assert load(spark, loading).loaded == 50
    return segment, loading


def test_other_records_at_the_same_offsets_are_found(
    spark: Any, by_hand: tuple[Segment, LoadOptions]
) -> None:
    """As after an unclean election: the log was cut and written again, every offset is plausible."""
    segment, loading = by_hand
    segment.write({23: "someone else", 31: "and again"})
    report = check(spark, loading)
    assert report.problems == ["2 rows of the log are altered"]
    assert report.missing == [[0, 23, 24], [0, 31, 32]]


def test_records_removed_by_log_compaction_are_no_problem(
    spark: Any, by_hand: tuple[Segment, LoadOptions]
) -> None:
    segment, loading = by_hand
    segment.write({3: None, 4: None, 41: None})
    report = check(spark, loading)
    assert (report.problems, report.rows_gone_from_log, report.rows_compared) == ([], 3, 50)
    segment.write({3: None, 4: None, 41: "someone else"})
    assert check(spark, loading).problems == ["1 rows of the log are altered"]


def test_offsets_before_the_log_start_are_checked_by_files(
    spark: Any, by_hand: tuple[Segment, LoadOptions]
) -> None:
    segment, loading = by_hand
    segment.begin_at(25)
    report = check(spark, loading)
    assert (report.problems, report.rows_gone_from_log, report.rows_compared) == ([], 25, 50)
    assert report.rows_decoded == 15, "the commit in which the log begins now cannot be told by its digest"
    table = Table(loading.root)
    rewrite(
        loading,
        table.files().rows[min(table.entries()[0].add, key=lambda file: file.offset_min).path],
        without_a_row,
    )
    re_sign(loading)
    assert check(spark, loading).problems == [], "counts fit, and nothing is left to compare with"


def test_truncated_log_is_reported_and_the_rest_checked(
    spark: Any, by_hand: tuple[Segment, LoadOptions]
) -> None:
    segment, loading = by_hand
    segment.write({}, end=40)
    report = check(spark, loading)
    assert_found(report, ["logins has become shorter than what was loaded of it"])
    assert report.rows_gone_from_log == 10
