"""The wheel, installed where there is nothing else of the project: it serves, compiled where the machine can compile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build
from tests.support.systems import linux_only
from tools.install_wheel import ROOT, build

from .test_kafka_python import COUNT, create, produce, read

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CACHE = ROOT / ".venv" / "wheel-build"
"""Directory of what `make` has compiled: the modules are compiled once for it and for these tests."""


def venv_with(wheel: Path, directory: Path) -> Path:
    """Make a virtual environment with the wheel and the packages that it needs; returns its `bin`.

    The packages are those of the running environment, found by a path file. What such a file adds is searched for modules
    only: the path file of the project's editable install in there has no effect.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(
        subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    )
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    install = ["install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", str(wheel)]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), *install], env=environment(), check=True
    )
    return directory / "bin"


def environment() -> dict[str, str]:
    """The environment without a path to the sources."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.parametrize("switch", [pytest.param("", marks=linux_only), "no"])
def test_an_installed_wheel_serves_stock_clients(tmp_path, set_environment, switch):
    set_environment(**{hatch_build.SWITCH: switch})
    is_compiled = switch != "no" and not hatch_build.missing()
    wheel = build(ROOT, CACHE, tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl") is not is_compiled
    programs = venv_with(wheel, tmp_path / "venv")
    command = [programs / "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment()
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert f" code={'compiled' if is_compiled else 'interpreted'} " in ready
            bootstrap = re.search(r"bootstrap\.servers=(\S+)", ready).group(1)
            create(bootstrap, "t", 3)
            produce(bootstrap, "t", 0, COUNT)
            assert sorted(read(bootstrap, "t", 3, COUNT)) == list(range(COUNT))
        finally:
            broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0
    where = "import barnabas.records.scan as scan, barnabas.cli as cli; print(scan.__file__, cli.__file__)"
    files = subprocess.run(
        [programs / "python", "-c", where], capture_output=True, text=True, env=environment(), check=True
    ).stdout.split()
    assert all(file.startswith(str(tmp_path)) for file in files)


def test_wheel_that_cannot_be_compiled_as_required_fails(tmp_path, set_environment):
    set_environment(**{hatch_build.SWITCH: "yes"})
    set_environment(CC=str(tmp_path / "no-compiler"))
    command = [sys.executable, "-c", "import hatchling.build; hatchling.build.build_wheel('.')"]
    done = subprocess.run([*command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "there is no C compiler" in done.stderr
