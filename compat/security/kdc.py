"""A private Kerberos realm: MIT's key distribution centre on a port of loopback, with all files in one directory.

    with Realm(directory) as realm:
        keytab = realm.keytab("kafka/localhost", "alice")
        subprocess.run([...], env={**os.environ, **realm.environment})

The rule: it needs neither root nor system files: a realm ends with its process, and leaves nothing outside its directory.
Programs are Debian's (packages krb5-kdc and krb5-admin-server).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from compat.kit.ending import end_servers_at_sigterm

PACKAGES = ("krb5-kdc", "krb5-admin-server")
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
NAME = "BARNABAS.TEST"
TIMEOUT_S = 60
POLL_S = 0.02
ATTEMPTS = 5
"""To take a free port: another process may be quicker."""


class RealmError(Exception):
    """The realm cannot be started; the message has the missing requirement, or the output of a program."""


def program(name: str) -> str:
    """Return the path of one of the programs. Raises RealmError."""
    path = shutil.which(name, path=PLACES)
    if path is None:
        raise RealmError(f"{name} is missing (Debian: apt-get install {' '.join(PACKAGES)})")
    return path


def install(*packages: str) -> None:
    """Install Debian packages; only root can. Raises RealmError."""
    if os.geteuid() or not shutil.which("apt-get"):
        raise RealmError(f"something is missing; run: sudo apt-get install {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", *packages]):
        done = subprocess.run(
            ["apt-get", *command], capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise RealmError(f"apt-get install {' '.join(packages)} failed: {done.stderr.strip()[-300:]}")


class Realm:
    """A realm. Lifecycle: a context manager. All times are in seconds. Raises RealmError."""

    def __init__(self, directory: Path, *, clock_skew_s: int = 300) -> None:
        self.directory = directory
        self.port = 0
        self._clock_skew_s = clock_skew_s
        self._known: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        for name in PROGRAMS:
            program(name)

    @property
    def config(self) -> Path:
        """The krb5.conf of clients and services."""
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of processes of this realm; replays are noted in its directory, tickets nowhere."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5RCACHEDIR": str(self.directory),
            "KRB5CCNAME": str(self.directory / "no-tickets"),
        }

    @property
    def java_options(self) -> tuple[str, ...]:
        """The same for Java."""
        return (
            f"-Djava.security.krb5.conf={self.config}",
            f"-Djava.io.tmpdir={self.directory}",
        )

    def __enter__(self) -> Realm:
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(ATTEMPTS):
            self._write()
            if not (self.directory / "principal").exists():
                self._run("kdb5_util", "-r", NAME, "create", "-s", "-P", "of no use to anybody")
            if self._begin():
                return self
        raise RealmError(f"no key distribution centre starts:\n{self._said()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(TIMEOUT_S)

    # --- principals -----------------------------------------------------------------------------------------

    def add(self, principal: str, *, life_s: int = 0) -> None:
        """Create a principal with a random key; its tickets are valid for at most `life_s` (0: a day)."""
        life = f'-maxlife "{life_s} seconds" ' if life_s else ""
        self._query(f"addprinc -randkey {life}{principal}")
        self._known.add(principal)

    def keytab(self, *principals: str) -> Path:
        """Return a file with the keys of principals, which are made where they are not there."""
        path = self.directory / f"{'-'.join(principals).replace('/', '_')}.keytab"
        path.unlink(missing_ok=True)
        for principal in principals:
            if principal not in self._known:
                self.add(principal)
            self._query(f"ktadd -norandkey -k {path} {principal}")
        return path

    def change_key(self, principal: str) -> None:
        """Give a principal a new key: keytabs that were made before do not have it."""
        self._query(f"cpw -randkey {principal}")

    def tickets(self, principal: str, *, life_s: int = 0) -> Path:
        """Log in and return a file of tickets (a credential cache)."""
        cache = self.directory / f"{principal.replace('/', '_')}.tickets"
        life = ("-l", f"{life_s}s") if life_s else ()
        self._run("kinit", "-k", "-t", str(self.keytab(principal)), "-c", str(cache), *life, principal)
        return cache

    # --- the process ----------------------------------------------------------------------------------------

    def _write(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.config.write_text(f"""[libdefaults]
default_realm = {NAME}
dns_lookup_realm = false
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
clockskew = {self._clock_skew_s}
ticket_lifetime = 24h

[realms]
{NAME} = {{
    kdc = 127.0.0.1:{self.port}
}}

[domain_realm]
localhost = {NAME}
""")
        (self.directory / "kdc.conf").write_text(f"""[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{self.port}

[realms]
{NAME} = {{
    database_name = {self.directory}/principal
    key_stash_file = {self.directory}/stash
    acl_file = {self.directory}/kadm5.acl
    supported_enctypes = aes256-cts:normal aes128-cts:normal
    max_life = 24h
}}

[logging]
kdc = FILE:{self.directory}/kdc.log
""")

    def _begin(self) -> bool:
        """Start the process; false where another one has taken its port."""
        end_servers_at_sigterm()
        with (self.directory / "krb5kdc.out").open("ab") as output:
            self._process = process = subprocess.Popen(
                [program("krb5kdc"), "-n", "-r", NAME],
                stdout=output,
                stderr=output,
                env=self._own_environment(),
            )
        deadline = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return True
            time.sleep(POLL_S)
        return False

    def _own_environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def _query(self, query: str) -> None:
        self._run("kadmin.local", "-r", NAME, "-q", query)

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [program(name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env=self._own_environment(),
        )
        if done.returncode:
            raise RealmError(f"{name} {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")

    def _said(self) -> str:
        return (self.directory / "krb5kdc.out").read_text(errors="replace")[-2000:]
