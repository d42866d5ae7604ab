"""One attack on one broker: latencies of the quiet client, growth of memory and log, and broken guarantees.

The rule: promises are counted, times are only shown. Broken is: the broker has ended or does not answer, an acknowledged
record is missing, memory or log grew beyond the bound, a traceback in its output, an answer that is not the right one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compat.hostile.attack import Attack, NoAnswer, Peer, PeerClosed, Target, decoded
from compat.hostile.messages import frame
from compat.hostile.quiet import QuietProcess
from compat.kit.wire import WireError, message

QUIET_TOPIC = "quiet"
NEEDS_OF_ALL = (("CreateTopics", 4), ("DeleteTopics", 3), ("Metadata", 4), ("Produce", 7), ("Fetch", 11))
RSS_POLL_S = 0.05
RSS_SETTLE_S = 8.0
RSS_KEPT_MB_MAX = 96.0
"""Memory that a broker may keep above what it had before: allocators give back late."""
LOG_BYTES_MAX = 256 * 1024
QUIET_AFTER_S = 0.2


@dataclass
class Victim:
    """The broker under attack.

    `pid` is None if its memory is not judged, `log` if its output is not; `is_own` says that it was
    started for this, so with the settings that an attack asks for.
    """

    host: str
    port: int
    pid: int | None = None
    log: Path | None = None
    metrics: tuple[str, int] | None = None
    is_own: bool = True

    def rss_mb(self) -> float:
        """Resident memory; 0 if it has ended or is not known."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return 0.0
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)

    def log_bytes(self) -> int:
        """The size of its output so far."""
        return self.log.stat().st_size if self.log is not None else 0

    def answers(self) -> bool:
        """Return whether a new connection is answered."""
        try:
            with Peer(self.host, self.port) as peer:
                peer.send(frame("ApiVersions", 0, {}))
                peer.answer()
        except (PeerClosed, NoAnswer, OSError):
            return False
        return True

    def versions(self) -> dict[int, tuple[int, int]]:
        """The versions that it claims to serve, by API key."""
        with Peer(self.host, self.port) as peer:
            peer.send(frame("ApiVersions", 0, {}))
            keys = decoded("ApiVersions", 0, peer.answer())["ApiKeys"]
        return {key["ApiKey"]: (key["MinVersion"], key["MaxVersion"]) for key in keys}


@dataclass
class Result:
    """The result of one attack."""

    attack: Attack
    skipped: str = ""
    count: int = 0
    """Requests of the quiet client meanwhile."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    seconds: float = 0.0
    rss_before_mb: float = 0.0
    rss_peak_mb: float = 0.0
    rss_after_mb: float = 0.0
    log_bytes: int = 0
    broken: list[str] = field(default_factory=list)


class _RssWatch(threading.Thread):
    """Notes the largest resident memory until it is stopped."""

    def __init__(self, victim: Victim) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0
        self._victim = victim
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(RSS_POLL_S):
            self.peak_mb = max(self.peak_mb, self._victim.rss_mb())

    def stop(self) -> float:
        self._over.set()
        self.join()
        return self.peak_mb


def lacks(attack: Attack, victim: Victim, target: Target) -> str:
    """Return why an attack does not apply to this broker; empty if it does."""
    lacking = [f"{api} v{version}" for api, version in attack.needs if not target.serves(api, version)]
    if lacking:
        return f"{', '.join(lacking)} not served"
    if attack.settings and not victim.is_own:
        return "needs a broker of its own"
    if attack.needs_metrics and victim.metrics is None:
        return "no metrics endpoint"
    return ""


@contextmanager
def quiet_beside(victim: Victim) -> Iterator[QuietProcess]:
    """The quiet client, which runs beside all attacks on one broker. Raises RuntimeError, PeerClosed, NoAnswer."""
    target = Target(victim.host, victim.port, random.Random(0), 0, True, victim.versions())
    for api, version in NEEDS_OF_ALL:
        if not target.serves(api, version):
            raise RuntimeError(f"{api} v{version} is not served")
    target.create_topics([QUIET_TOPIC])
    with QuietProcess(f"{victim.host}:{victim.port}", QUIET_TOPIC) as quiet:
        yield quiet


def run(
    attack: Attack, victim: Victim, quiet: QuietProcess, *, seed: int, seconds: float, is_short: bool
) -> Result:
    """Attack a running broker; returns the result. Failures of the broker are in the result, not raised."""
    result = Result(attack)
    rng = random.Random(f"{seed} {attack.name}")
    versions = victim.versions()
    target = Target(victim.host, victim.port, rng, seconds, is_short, versions, metrics=victim.metrics)
    result.skipped = lacks(attack, victim, target)
    if result.skipped:
        return result
    result.rss_before_mb = victim.rss_mb()
    log_before = victim.log_bytes()
    watch = _RssWatch(victim)
    target.on_begin = quiet.begin
    began = time.monotonic()
    watch.start()
    try:
        quiet.begin()
        attack.act(target)
        time.sleep(QUIET_AFTER_S)  # a stall that has begun must be felt before it is asked for
    except (PeerClosed, NoAnswer, WireError, OSError, RuntimeError) as error:
        result.broken.append(f"the attack could not go on: {type(error).__name__}: {error}")
    target.close()
    result.broken += target.problems
    try:
        _felt(result, quiet)
        result.broken += quiet.check()
    except (ConnectionError, TimeoutError) as error:
        result.broken.append(str(error))
    result.seconds = time.monotonic() - began
    result.rss_peak_mb = watch.stop()
    _judge(result, victim, log_before)
    return result


def _felt(result: Result, quiet: QuietProcess) -> None:
    """Note the measurements of the quiet client."""
    felt = quiet.end()
    latencies = felt["latencies_ms"]
    result.broken += [f"quiet client: {problem}" for problem in felt["problems"]]
    result.count = len(latencies)
    if latencies:
        result.p50_ms = latencies[len(latencies) // 2]
        result.p99_ms = latencies[min(len(latencies) * 99 // 100, len(latencies) - 1)]
        result.max_ms = latencies[-1]


def _judge(result: Result, victim: Victim, log_before: int) -> None:
    """Check the general guarantees of the broker."""
    if not victim.answers():
        result.broken.append("the broker does not answer any more")
        return
    if victim.pid is not None:
        ends = time.monotonic() + RSS_SETTLE_S
        allowed = result.rss_before_mb + RSS_KEPT_MB_MAX
        while (now := victim.rss_mb()) > allowed and time.monotonic() < ends:
            time.sleep(RSS_POLL_S)
        result.rss_after_mb = now
        if now > allowed:
            result.broken.append(f"keeps {now - result.rss_before_mb:.0f} MB")
        grown = result.rss_peak_mb - result.rss_before_mb
        if grown > result.attack.rss_mb_max:
            result.broken.append(f"took {grown:.0f} MB, allowed {result.attack.rss_mb_max:.0f}")
    if victim.log is not None:
        result.log_bytes = victim.log_bytes() - log_before
        if result.log_bytes > LOG_BYTES_MAX:
            result.broken.append(f"logged {result.log_bytes / 1024:.0f} KB, allowed {LOG_BYTES_MAX // 1024}")
        with victim.log.open("rb") as log:
            log.seek(log_before)
            output = log.read(4 * LOG_BYTES_MAX).decode(errors="replace")
        complaints = [line for line in output.splitlines() if "Traceback" in line or " CRITICAL " in line]
        if complaints:
            result.broken.append(f"{len(complaints)} tracebacks or critical errors: {_last_words(output)}")


def _last_words(output: str) -> str:
    """Return the line of the log with the error of the first traceback."""
    lines = output.splitlines()
    start = next((n for n, line in enumerate(lines) if "Traceback" in line or " CRITICAL " in line), 0)
    after = [line for line in lines[start + 1 :] if line and not line.startswith((" ", "\t"))]
    return (after or lines[start : start + 1] or [""])[0][:160]


def key_of(api: str) -> int:
    """The number of an API."""
    key = message(f"{api}Request").api_key
    assert key is not None
    return key
