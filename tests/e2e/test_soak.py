"""A short soak: transactional workers and the broker are killed, and every order is in the ledger exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.matrix.brokers import Barnabas
from compat.soak.transfers import run

pytestmark = pytest.mark.e2e


def test_transfers_survive_kills(tmp_path: Path) -> None:
    figures = run(Barnabas(tmp_path), tmp_path, seed=5, rounds=6, orders=4_000, workers=2)
    assert figures.brokers_killed == 2
    assert figures.workers_killed == 4
