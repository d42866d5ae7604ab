"""Log dirs of several workers: only those that as many have used, or fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.serve_options import WORKER_DIRECTORY, check_workers
from barnabas.config.setting import SettingError


def test_workers_are_no_part_of_a_cluster_and_one_broker_may_be(tmp_path: Path) -> None:
    check_workers([str(tmp_path)], 1, is_clustered=True)
    check_workers([str(tmp_path)], 3, is_clustered=False)
    with pytest.raises(SettingError, match="--workers 2: workers are a cluster of their own"):
        check_workers([str(tmp_path)], 2, is_clustered=True)


def test_the_data_of_one_broker_is_not_given_to_several(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    check_workers([str(tmp_path)], 1, is_clustered=False)
    with pytest.raises(SettingError, match="holds the data of one broker"):
        check_workers(["/new", str(tmp_path)], 2, is_clustered=False)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_workers_may_become_more_and_not_fewer(tmp_path: Path, workers: int) -> None:
    for number in (1, 2, 3, 5):  # the fourth is missing: the fifth is not counted
        (tmp_path / f"{WORKER_DIRECTORY}{number}").mkdir()
    (tmp_path / "meta.properties").touch()
    if workers >= 3:
        check_workers([str(tmp_path)], workers, is_clustered=False)
        return
    with pytest.raises(SettingError, match="the data of 3 workers: start with --workers 3, or with more"):
        check_workers([str(tmp_path)], workers, is_clustered=False)
