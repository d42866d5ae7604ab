"""A certificate authority of one's own: what is there is used again, and only its owner can read a key."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from barnabas.network.certificates import AUTHORITY, make_all, write_private


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def common_name(name: x509.Name) -> str:
    return str(name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def test_keys_are_signed_by_the_authority_for_the_hosts(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    make_all(
        directory, "server", ("ann",), hosts=("broker.example", "10.0.0.1", "::1"), authority_name="Ours"
    )
    authority = certificate(directory / f"{AUTHORITY}.crt")
    assert common_name(authority.subject) == common_name(authority.issuer) == "Ours"
    for name, path in (("server", "server.crt"), ("ann", "ann.pem")):
        cert = certificate(directory / path)
        cert.verify_directly_issued_by(authority)
        assert (common_name(cert.subject), common_name(cert.issuer)) == (name, "Ours")
        assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = (
        certificate(directory / "server.crt")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert names.get_values_for_type(x509.DNSName) == ["broker.example"]
    addresses = names.get_values_for_type(x509.IPAddress)
    assert addresses == [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1")]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_present_keys_are_reused_and_missing_ones_signed(tmp_path: Path) -> None:
    make_all(tmp_path, "server", ("ann",))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make_all(tmp_path, "server", ("ann", "bob"))
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.items() >= before.items()
    assert after.keys() - before.keys() == {"bob.key", "bob.crt", "bob.pem"}
    certificate(tmp_path / "bob.crt").verify_directly_issued_by(certificate(tmp_path / f"{AUTHORITY}.crt"))


@pytest.mark.parametrize("is_there", [False, True])
def test_nobody_else_can_read_a_key(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "a.key"
    if is_there:
        path.write_bytes(b"an old one, which everybody may read")
        path.chmod(0o644)
    write_private(path, b"secret")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o600)
    make_all(tmp_path, "server")
    modes = {file.suffix: file.stat().st_mode & 0o777 for file in tmp_path.iterdir() if file != path}
    assert (modes[".key"], modes[".pem"]) == (0o600, 0o600)
