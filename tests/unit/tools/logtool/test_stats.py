"""`barnabas log stats`, the progress bar, and the command itself."""

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tools.logtool.progress import Progress, render
from tests.support.logs import NOW_MS, Broker, append


def test_a_log_is_counted(tool, kafka_dir):
    (row,) = tool("stats", "--deep", kafka_dir)
    assert (row["name"], row["segments"], row["batches"], row["records"]) == ("golden-0", 5, 62, 62)
    assert row["log_bytes"] == sum(path.stat().st_size for path in kafka_dir.rglob("*.log"))
    assert row["codecs"] == {"lz4": 20, "none": 42}
    assert (row["control_batches"], row["producers"]) == (10, 3)
    assert (row["first_offset"], row["end_offset"]) == (0, 62)


def test_keys_and_tombstones_are_counted(tool, directory):
    broker = Broker(directory)
    pairs = [(b"a", b"12"), (b"b", None), (b"a", b"345"), (None, b"6")]
    append(broker.log(), bytearray(encode_batch([Record(n, NOW_MS, *pair) for n, pair in enumerate(pairs)])))
    broker.manager.close()
    (row,) = tool("stats", "--deep", "--only", "t", directory)
    assert (row["distinct_keys"], row["null_keys"], row["tombstones"]) == (2, 1, 1)
    assert (row["key_bytes"], row["value_bytes"]) == (3, 6)
    assert tool("stats", "--only", "another", directory) == []


def test_damage_is_noted(tool, log_dir):
    path = sorted((log_dir / "orders-0").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-5])
    (row,) = tool("stats", log_dir)
    assert tool.code == 1
    assert path.name in row["problems"][0]


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_the_bar_tells_share_speed_and_rest():
    assert render(0, 10_000_000, 0) == "[..............................]   0% of 10.0 MB, 0 MB/s"
    assert (
        render(5_000_000, 10_000_000, 2)
        == "[###############...............]  50% of 10.0 MB, 2 MB/s, 2 s left"
    )
    assert render(10_000_000, 10_000_000, 2).startswith("[##############################] 100%")


def test_the_bar_is_drawn_on_terminals_and_wiped_away(monkeypatch):
    clock = iter([0.0, 0.05, 0.2, 0.25])
    monkeypatch.setattr("barnabas.tools.logtool.progress.monotonic", lambda: next(clock))
    terminal = Terminal()
    progress = Progress(100, terminal)  # type: ignore[arg-type]
    for _ in range(3):
        progress.add(10)
    progress.clear()
    assert terminal.text.count("[") - terminal.text.count("\x1b[") == 1
    assert terminal.text.endswith("\r\x1b[K")
