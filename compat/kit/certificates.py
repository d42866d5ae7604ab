"""Certificate authorities and keys in PEM files, created by openssl.

The rule: each file has a key and its certificate, which Apache Kafka, ZooKeeper and Barnabas all read.
"""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIFETIME_DAYS = 2


class CertificateError(Exception):
    """openssl did not make it; the message has its words."""


@dataclass(frozen=True)
class Signed:
    """A key with its certificate, as files."""

    key: Path
    """PKCS #8, encrypted if a password was given."""
    certificate: Path
    pem: Path
    """Key and certificate in one file."""


class Authority:
    """A certificate authority in a directory, with a self-signed certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        """Make it. Raises CertificateError."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = name
        self.pem = directory / f"{name}.pem"
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(LIFETIME_DAYS), "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", self.pem.name,
        )  # fmt: skip

    def signed(
        self, common_name: str, *, file: str = "", password: str = "", days: int = LIFETIME_DAYS
    ) -> Signed:
        """Make a key and a certificate for 127.0.0.1 and localhost.

        `file` begins the names of the files, `password` encrypts the key; with negative `days` it has expired.
        Raises CertificateError.
        """
        name = file or common_name.lower()
        self._openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={common_name}",
            "-keyout", f"{name}.raw", "-out", f"{name}.csr",
        )  # fmt: skip
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(
            "basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        self._sign(name, days)
        key = self._directory / f"{name}.pkcs8"
        options = ("-v2", "aes-256-cbc", "-passout", f"pass:{password}") if password else ("-nocrypt",)
        self._openssl("pkcs8", "-topk8", "-in", f"{name}.raw", "-out", key.name, *options)
        certificate = self._directory / f"{name}.crt"
        both = self._directory / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return Signed(key, certificate, both)

    def _sign(self, name: str, days: int) -> None:
        if days > 0:
            self._openssl(
                "x509", "-req", "-in", f"{name}.csr", "-CA", self.pem.name, "-CAkey", f"{self._name}.key",
                "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.crt",
            )  # fmt: skip
            return
        # Before OpenSSL 3.4 `x509` supports no dates in the past; `ca` does, and needs its own files.
        config = self._directory / f"{name}.cnf"
        (self._directory / f"{name}.index").write_text("")
        (self._directory / f"{name}.serial").write_text("0A\n")
        config.write_text(
            f"[ca]\ndefault_ca=own\n[own]\nnew_certs_dir=.\ndatabase={name}.index\nserial={name}.serial\n"
            "default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
        )
        now = datetime.datetime.now(datetime.UTC)
        begin, end = (now + datetime.timedelta(days=days - 1), now + datetime.timedelta(days=days))
        self._openssl(
            "ca", "-batch", "-config", config.name, "-in", f"{name}.csr", "-cert", self.pem.name, "-keyfile",
            f"{self._name}.key", "-startdate", f"{begin:%y%m%d%H%M%SZ}", "-enddate", f"{end:%y%m%d%H%M%SZ}",
            "-extfile", f"{name}.ext", "-notext", "-out", f"{name}.crt",
        )  # fmt: skip

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self._directory, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CertificateError(f"openssl {' '.join(arguments)}: {done.stderr}")
