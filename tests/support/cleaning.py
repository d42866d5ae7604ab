"""Cleaning logs in tests: writing records, cleaning, and the records that must remain."""

from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from tests.support.logs import NOW_MS, append, read_all

COMPACTED = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0}


def cleaner(broker, **options):
    """Return a cleaner, after a flush of all logs: it skips unflushed records."""
    for log in broker.manager:
        log.flush(NOW_MS)
    return LogCleaner(lambda: broker.manager, **options)


def clean(broker, now_ms=NOW_MS, **options):
    assert cleaner(broker, **options).clean(now_ms)
    broker.manager.remove_due(now_ms + 60_000)


def write(log, *pairs, **options):
    """Append one batch with the given keys and values."""
    base = [Record(n, NOW_MS, key, value) for n, (key, value) in enumerate(pairs)]
    return append(log, bytearray(encode_batch(base, **options)))


def contents(log):
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def headers(log):
    return [header for segment in log.segments for _, header in segment.headers()]


def last_of_each_key(pairs, *, before=1 << 62):
    """Return the (offset, key, value) that remain after compaction of the offsets below `before`."""
    last = {key: offset for offset, key, _ in pairs if offset < before}
    return [pair for pair in pairs if pair[0] >= before or last[pair[1]] == pair[0]]


def dirty_log(broker):
    log = broker.log()
    for n in range(60):
        write(log, (b"%d" % (n % 5), b"v%d" % n))
    log.roll()
    return log
