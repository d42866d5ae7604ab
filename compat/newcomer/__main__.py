"""python -m compat.newcomer [CHECK ...]: the first steps of a newcomer, as a user without rights, with an empty home.

Run by root, which gives its rights away: the user has none, but a copy of the committed files, and a PATH without
compiler, Java and pyenv. Packages come from the registry, through pip. The exit code is 1 when a check fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compat.kit.ending import end_servers_at_sigterm

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
HIDDEN = re.compile(r"(java.*|mvn|gcc.*|g\+\+.*|cc|c\+\+|clang.*|c89.*|c99.*|.*-linux-gnu-g.*)")
"""Programs that the newcomer does not have."""
TIMEOUT_S = 240
READY = re.compile(r"barnabas is ready: bootstrap\.servers=(\S+) .*code=(\w+) .*data=(.*)")
WORDS = (
    "compiles what looks at every record", "way of a request through the house",
    "what we did not write, against what we did", "lies as little as a disk",
    "listen where only those can come who may look",
)  # fmt: skip
"""Sentences that no reader understood at first reading."""


class CheckError(Exception):
    """A check has failed; the message has the reason."""


def expect(what: bool, why: str) -> None:
    """Raise CheckError with `why` unless `what` is true."""
    if not what:
        raise CheckError(why)


class Machine:
    """A directory with the newcomer's environment: a PATH, a home, a checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path, self.home, self.checkout = directory / "bin", directory / "home", directory / "barnabas"
        directory.chmod(0o755)
        self.path.mkdir()
        for source in ("/usr/bin", "/bin", "/usr/sbin"):
            for program in Path(source).iterdir():
                link = self.path / program.name
                if not link.exists() and not link.is_symlink() and not HIDDEN.fullmatch(program.name):
                    link.symlink_to(program)
        self.home.mkdir()
        self.checkout.mkdir()
        files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(self.checkout)], input=files, check=True)
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(self.home), str(self.checkout)], check=True)
        (directory / "tmp").mkdir()
        (directory / "tmp").chmod(0o1777)

    @property
    def environment(self) -> dict[str, str]:
        """All that is set."""
        return {
            "PATH": str(self.path), "HOME": str(self.home), "TMPDIR": str(self.directory / "tmp"), "LANG": "C.UTF-8",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **{name: os.environ[name] for name in PROXIES if name in os.environ},
        }  # fmt: skip

    def run(
        self, *command: str | Path, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end as the user; the output has both streams."""
        return subprocess.run(
            [*AS_NOBODY, *map(str, command)], cwd=cwd or self.checkout, env={**self.environment, **more}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    def must(self, *command: str | Path, cwd: Path | None = None, **more: str) -> str:
        """Run a command that must succeed; returns its output."""
        done = self.run(*command, cwd=cwd, **more)
        expect(
            done.returncode == 0,
            f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}",
        )
        return done.stdout

    @contextmanager
    def serving(self, *command: str | Path, **more: str) -> Iterator[tuple[str, str, str]]:
        """Run a broker until the block ends; gives its address, which code runs, and where its data are.

        Its exit code is 0; that of `make` says that it was told to end.
        """
        end_servers_at_sigterm()
        with subprocess.Popen(
            [*AS_NOBODY, *map(str, command)], cwd=self.checkout, env={**self.environment, **more}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as broker:  # fmt: skip
            assert broker.stdout is not None
            assert broker.stderr is not None
            try:
                ready = None
                for line in broker.stdout:
                    ready = READY.search(line)
                    if ready:
                        break
                if ready is None:
                    raise CheckError(f"it does not start: {broker.stderr.read()[-2000:]}")
                yield ready[1], ready[2], ready[3]
            finally:
                broker.send_signal(signal.SIGTERM)
                output = broker.stderr.read()
        expect(
            broker.returncode in (0, *((2, -signal.SIGTERM) if command[0] == "make" else ()))
            and "Traceback" not in output,
            f"it ends with {broker.returncode}: {output[-2000:]}",
        )


PROXIES = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CONFIG_FILE",
    "PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
AS_NOBODY = (
    "/usr/bin/setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
)  # fmt: skip


# --- the checks -----------------------------------------------------------------------------------------------------


def without_venv(machine: Machine) -> None:
    """python3-venv is not installed: said, with the package, before anything else is tried."""
    where = "import os; print(os.path.dirname(os.__file__))"
    output = subprocess.run(["/usr/bin/python3", "-c", where], capture_output=True, text=True, check=True)
    library = Path(output.stdout.strip())
    copy = machine.directory / "library"
    shutil.copytree(library, copy, symlinks=True, ignore=shutil.ignore_patterns("ensurepip"))
    inner = f"mount --bind {copy} {library} && cd {machine.checkout} && exec {' '.join(AS_NOBODY)} make run"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inner], env=machine.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    shutil.rmtree(copy)
    expect(done.returncode != 0, "it went on without it")
    expect("apt-get install python3-venv" in done.stdout, done.stdout[-2000:])
    expect("Traceback" not in done.stdout, done.stdout[-2000:])


def make_run(machine: Machine) -> None:
    """`make run` sets up and serves on localhost, interpreted, with its data below the home; and so again."""
    for _ in range(2):
        with machine.serving("make", "run", "ARGS=--listen 127.0.0.1:0") as (bootstrap, code, data):
            expect(bootstrap.startswith("127.0.0.1:"), bootstrap)
            expect(code == "interpreted", code)
            expect(data == str(machine.home / ".local/state/barnabas"), data)
    compiled = list((machine.checkout / ".venv/lib").rglob("trio/**/*.pyc"))
    expect(bool(compiled), "no byte code was compiled at set-up")


def readme(machine: Machine) -> None:
    """The README's test with pytest and its two clients, as printed."""
    text = (machine.checkout / "README.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    place = machine.directory / "application"
    place.mkdir()
    (place / "test_orders.py").write_text(block[1])
    shutil.chown(place, NOBODY, NOBODY)
    python = machine.checkout / ".venv/bin/python"
    machine.must(python, "-m", "pip", "install", "--quiet", "pytest", "confluent-kafka", "kafka-python")
    output = machine.must(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py", cwd=place)
    expect("1 passed" in output, output)


def options(machine: Machine) -> None:
    """Slips on the command line are explained in a line or two, and leave nothing behind."""
    program = machine.checkout / ".venv/bin/barnabas"
    for arguments, expected in (
        (("--data", ""), "--data"),
        (("--listen", "127.0.0.1:0", "--ephemeral", "--sett", "x=1"), "--sett"),
        (("--set", "authorizer.class.name=com.example.Mine"), "authorizer.class.name"),
        (("--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"), "0.0.0.0"),
        (("--set", "advertised.listeners=OTHER://localhost:9092"), "OTHER"),
    ):
        done = machine.run(program, "serve", *arguments)
        expect(done.returncode in (1, 2), f"{arguments}: exit code {done.returncode}: {done.stdout[-500:]}")
        expect(
            expected in done.stdout and "Traceback" not in done.stdout, f"{arguments}: {done.stdout[-500:]}"
        )
    with machine.serving(program, "serve", "--listen", "INSIDE://127.0.0.1:0", "--ephemeral") as (_, _, data):
        expect(Path(data).is_dir(), data)
    expect(not Path(data).exists(), f"{data} is still there")
    done = machine.run("sh", "-c", f"{program} --help > /dev/full")
    expect(done.returncode != 0 and "Traceback" not in done.stdout, done.stdout[-500:])


def installed(machine: Machine) -> None:
    """`pip install .` in the checkout, and the wheel alone: both serve, and name the pipeline's extra if it is missing."""
    wheels = machine.directory / "wheels"
    wheels.mkdir()
    shutil.chown(wheels, NOBODY, NOBODY)
    for what in ("checkout", "wheel"):
        venv = machine.home / f"venv-{what}"
        machine.must("python3", "-m", "venv", venv)
        if what == "wheel":
            machine.must(venv / "bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ".")
        target = machine.checkout if what == "checkout" else next(wheels.glob("barnabas-*.whl"))
        machine.must(venv / "bin/pip", "install", "--quiet", target, cwd=machine.home)
        with machine.serving(venv / "bin/barnabas", "serve", "--listen", "127.0.0.1:0", "--ephemeral") as (
            _,
            code,
            _,
        ):
            expect(code == "interpreted", code)
        for job in ("load", "demo", "simulate"):
            done = machine.run(venv / "bin/barnabas-pipeline", job, cwd=machine.home)
            expect(done.returncode == 4, f"{job}: exit code {done.returncode}: {done.stdout[-500:]}")
            expect(len(done.stdout.splitlines()) == 1, done.stdout[-1000:])
            expect("the extra `spark`" in done.stdout and "[spark]'" in done.stdout, done.stdout)


def without_java(machine: Machine) -> None:
    """With the extra and without Java: the package to install is said in one line. Downloads PySpark."""
    pip = machine.home / "venv-checkout/bin/pip"
    expect(pip.exists(), "the check `installed` comes before")
    machine.must(pip, "install", "--quiet", ".[spark]")
    done = machine.run(machine.home / "venv-checkout/bin/barnabas-pipeline", "load", cwd=machine.home)
    expect(done.returncode == 4 and len(done.stdout.splitlines()) == 1, done.stdout[-1000:])
    expect("apt-get install openjdk-" in done.stdout, done.stdout)


def words(machine: Machine) -> None:
    """Pages and help texts have none of the sentences that no reader understood."""
    pages = [machine.checkout / name for name in ("README.md", "ARCHITECTURE.md", "Makefile")]
    pages += [page for page in (machine.checkout / "docs").rglob("*.md") if "decisions" not in page.parts]
    texts = {str(page.relative_to(machine.checkout)): page.read_text() for page in pages}
    texts["--help"] = machine.must(machine.checkout / ".venv/bin/barnabas", "serve", "--help")
    for name, text in texts.items():
        sentences = [sentence for sentence in WORDS if sentence in " ".join(text.split())]
        expect(not sentences, f"{name}: {sentences}")
    cited = re.findall(r"docs/\S+\.md", texts["--help"])
    expect(not cited, f"--help names {cited}, which a wheel does not have")


CHECKS: tuple[Callable[[Machine], None], ...] = (
    without_venv, make_run, options, words, installed, readme, without_java,
)  # fmt: skip


def main() -> int:
    """Run the checks; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.newcomer", description=__doc__)
    parser.add_argument(
        "check",
        nargs="*",
        help=f"{', '.join(check.__name__ for check in CHECKS)}; all but the last by default",
    )
    names = parser.parse_args().check or [check.__name__ for check in CHECKS[:-1]]
    if os.getuid() != 0:
        print("SKIP: only root can become another user")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="newcomer-", dir="/var/tmp") as directory:
        machine = Machine(Path(directory))
        for check in CHECKS:
            if check.__name__ not in names:
                continue
            try:
                check(machine)
            except (CheckError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAIL {check.__name__}: {error}", flush=True)
            else:
                print(f"PASS {check.__name__}: {(check.__doc__ or '').splitlines()[0]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
