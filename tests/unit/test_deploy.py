"""The container files and the systemd unit: the options that they give the broker are ones that it takes."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.serve_options import collect
from barnabas.broker.startup import advertised_listeners, parse_endpoint
from barnabas.cli.options import add_serve
from barnabas.config.keeper import is_clustered
from barnabas.config.loading import BrokerConfig
from barnabas.config.without_effect import judge
from barnabas.network.sockets import SocketNetwork

ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINT = json.loads(
    re.search(r"^ENTRYPOINT (.*)$", (ROOT / "deploy/Containerfile").read_text(), re.M).group(1)
)
COMPOSE = (ROOT / "deploy/compose.yaml").read_text()


def config_of(arguments: list[str]) -> BrokerConfig:
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    collected = collect(parser.parse_args(arguments))
    config = BrokerConfig(collected.settings, collected.origins)
    assert config.unknown == []
    assert judge(config, collected.origins).refusals == []
    return config


def test_the_image_serves_on_all_interfaces_of_the_container():
    config = config_of(ENTRYPOINT[1:])
    assert [parse_endpoint(text) for text in config.listeners()] == [("PLAINTEXT", "0.0.0.0", 9092)]
    assert config.log_dirs == ("/var/lib/barnabas",)


def test_the_compose_file_advertises_the_port_that_it_maps():
    command = json.loads(re.search(r"^ +command: (.*)$", COMPOSE, re.M).group(1))
    config = config_of([*ENTRYPOINT[1:], *command])
    mapped, inner = re.search(r'- "127\.0\.0\.1:(\d+):(\d+)"', COMPOSE).groups()
    assert advertised_listeners(config, SocketNetwork()) == {"OUTSIDE": ("localhost", int(mapped))}
    assert ("OUTSIDE", "0.0.0.0", int(inner)) in [parse_endpoint(text) for text in config.listeners()]


def test_image_sources_exist_and_are_in_its_context():
    (requirements,) = re.findall(r"-r (\S+)$", (ROOT / "deploy/Containerfile").read_text(), re.M)
    assert (ROOT / requirements).exists()
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {requirements, "pyproject.toml", "hatch_build.py", "server", "README.md"} & set(ignored)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path):
    unit = (ROOT / "deploy/barnabas.service").read_text()
    (tmp_path / "barnabas.service").write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit, flags=re.M)  # it is not installed here
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "barnabas.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_unit_starts_a_broker_with_writable_data():
    unit = (ROOT / "deploy/barnabas.service").read_text()
    command = re.search(r"^ExecStart=\S+ (serve .*)$", unit, re.M).group(1).split()
    file = "/etc/barnabas/server.properties"
    assert file in command
    config = config_of([str(ROOT / "deploy/server.properties") if word == file else word for word in command])
    assert is_clustered(config)
    directory = re.search(r"^StateDirectory=(.*)$", unit, re.M).group(1)
    assert config.log_dirs == (f"/var/lib/{directory}",)


def test_debian_package_listens_on_loopback_by_default():
    config = config_of(["serve", "--config", str(ROOT / "deploy/debian/server.properties")])
    assert not is_clustered(config)
    assert [parse_endpoint(text) for text in config.listeners()] == [("PLAINTEXT", "localhost", 9092)]
    unit = (ROOT / "deploy/barnabas.service").read_text()
    directory = re.search(r"^StateDirectory=(.*)$", unit, re.M).group(1)
    assert config.log_dirs == (f"/var/lib/{directory}",)


@pytest.mark.parametrize("script", ["postinst", "prerm"])
def test_the_scripts_of_the_debian_package_are_shells(script):
    subprocess.run(["sh", "-n", ROOT / "deploy/debian" / script], check=True)
