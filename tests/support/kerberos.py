"""A realm for tests of Kerberos, which are skipped where no realm can be started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.network.kerberos import KerberosError, library
from compat.security.kdc import Realm, RealmError


@contextmanager
def realm_or_skip(directory: Path) -> Iterator[Realm]:
    """Start a realm, also used by this process; skips the test if it cannot, or fails it with CI=true."""
    try:
        library()
        realm = Realm(directory)
    except (KerberosError, RealmError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        yield realm
