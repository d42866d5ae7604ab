"""Every setting that Apache Kafka's brokers have is acted upon, warned of, or stops the start: none is unknown in silence.

The lists are what Kafka's own classes say, written by `python -m compat.configs.settings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.config import tables, topic

from .test_without_effect import judged, other_value

GOLDEN = Path(__file__).parents[2] / "golden" / "settings"
CURRENT = "kafka-4.4"
OTHER_DEFAULTS = {
    # docs/decisions/0030-defaults.md
    "node.id", "process.roles", "controller.listener.names", "listeners",
}  # fmt: skip


class Kafkas(NamedTuple):
    """A setting as Kafka defines it."""

    name: str
    type: str
    default: str
    importance: str
    internal: str


def settings_of(release: str) -> list[Kafkas]:
    return [Kafkas(*line.split("\t")) for line in (GOLDEN / f"{release}.tsv").read_text().splitlines()]


EVERY = {s.name: s for release in ("kafka-3.9", CURRENT) for s in settings_of(release)}


def test_there_are_lists():
    assert len(settings_of(CURRENT)) > 250
    assert len(EVERY) > len(settings_of(CURRENT))


@pytest.mark.parametrize("setting", EVERY.values(), ids=lambda setting: setting.name)
def test_each_setting_acts_or_warns_or_stops_the_start(setting):
    row = tables.find(setting.name)
    assert row is not None, "nobody here knows it"
    if (
        not row.effect or setting.name == "zookeeper.connect"
    ):  # with it the broker is one of a cluster, where it acts
        return
    verdict = judged({setting.name: other_value(row)})
    (line,) = (*verdict.refusals, *verdict.ignored)
    assert setting.name in line
    assert bool(verdict.refusals) == row.stops


@pytest.mark.parametrize("setting", settings_of(CURRENT), ids=lambda setting: setting.name)
def test_each_setting_has_kafkas_type_default_and_importance(setting):
    row = tables.setting(setting.name)
    assert (row.kind.name, row.importance) == (setting.type, setting.importance)
    if setting.name in OTHER_DEFAULTS:
        return
    if setting.default in ("(null)", "(required)"):
        assert row.default in (None, "", ()), row.default
    else:
        assert row.format(row.default) == setting.default


def test_settings_that_kafka_lacks_stand_in_the_own_table():
    """Nothing else may be shown where it is not set: a tool that takes what is shown to a Kafka would be refused."""
    shown = {*tables.listed(), *tables.listed(in_cluster=True)}
    assert shown - EVERY.keys() == set(), "they belong into config/tables/own.py"
    assert {*tables.names()} - EVERY.keys() >= tables.own_names(), "no rows, or settings of Kafka's"
    of_own = {row.name for row in topic.SETTINGS.values() if tables.own_names() & {*row.broker_names}}
    assert of_own == topic.OWN
