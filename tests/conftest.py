"""Pytest hooks that all tests share."""

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import barnabas
from barnabas.records import scan
from tests.support.effort import SEED
from tests.support.systems import IS_BSD

# A deadline per example is a timed assert, and so is how long it takes to draw some: a busy machine fails them, no bug.
UNTIMED = [HealthCheck.too_slow]
settings.register_profile("barnabas", deadline=None, suppress_health_check=UNTIMED)
# A night's finding must be found again by day: the blob that repeats it is printed.
settings.register_profile("nightly", deadline=None, suppress_health_check=UNTIMED, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "barnabas"))

ROOT = Path(__file__).resolve().parents[1]
OPEN_FILES = 300
"""Above so many the garbage of tests is collected: `select()` takes no descriptor above 1023."""
PACKAGE = Path(barnabas.__file__).resolve().parent


@pytest.fixture
def set_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set variables of the environment until the end of the test; None removes one."""

    def put(**variables: str | None) -> None:
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return put


@pytest.hookimpl(tryfirst=True)  # before that of Hypothesis
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis draw from the seed of all random tests."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    code = "interpreted" if scan.__file__.endswith(".py") else "compiled"
    return f"barnabas: {PACKAGE}, {code}{', as on macOS' if IS_BSD else ''}; BARNABAS_TEST_SEED={SEED}"


def pytest_sessionstart() -> None:
    """Let signals act, and run the code that is seen: the sources of this checkout, or a wheel that is of these sources."""
    # What nohup, or a shell that runs us in the background, has made us ignore, the programs under test would ignore too.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if PACKAGE == ROOT / "server" / "barnabas":
        return
    from tools.install_wheel import is_current

    if not is_current(ROOT, PACKAGE.parent):
        pytest.exit(f"{PACKAGE} is not of the sources that are here; `make test` builds it", returncode=4)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without the garbage collector, which finds nothing there, and freeze them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files in an order in which several processes share them well.

    Those that take longest are the first, so that none is left to one process at the end. Those that wait for other
    processes are spread among those that calculate, but for the last fifth, where one that waits would be waited for.
    """
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    waiting = {item.path for item in items if item.get_closest_marker("e2e")}
    place: dict[Path, float] = {}
    for paths, part in ((waiting, 0.8), ({item.path for item in items} - waiting, 1.0)):
        place |= {path: part * n / len(paths) for n, path in enumerate(sorted(paths))}
    items.sort(key=lambda item: (item.path not in slow, place[item.path], item.path))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave no garbage to other tests: a command that ran in this process sets the collector up for one of its own.

    Files of brokers that tests have dropped are in cycles, which are seldom looked for. Levels of loggers that tests have
    changed would keep lines from those of other files; that of kazoo is the broker's own doing.
    """
    gc.enable()
    if len(os.listdir("/dev/fd")) > OPEN_FILES:
        gc.collect()
    if nextitem is None or nextitem.path != item.path:
        leftover = {
            name: logger
            for name, logger in logging.root.manager.loggerDict.items()
            if name.startswith("barnabas.")
            and not name.endswith(".kazoo")
            and isinstance(logger, logging.Logger)
            and logger.level
        }
        for logger in leftover.values():
            logger.setLevel(logging.NOTSET)
        assert not leftover, f"{item.path} leaves loggers with levels of their own: {sorted(leftover)}"
