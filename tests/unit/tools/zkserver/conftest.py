"""Servers as processes, which can be killed."""

import subprocess
import sys

import pytest


class Process:
    """A server on a directory; started again it has another port."""

    def __init__(self, directory):
        self.directory = directory
        self.start()

    def start(self):
        command = [sys.executable, "-m", "barnabas", "zookeeper", "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            [*command, "--data", str(self.directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline()
        if "zookeeper.connect=" not in line:
            raise AssertionError(self.failure())
        self.address = line.partition("zookeeper.connect=")[2].split()[0]

    def failure(self):
        _, text = self._process.communicate(timeout=20)
        return text

    def kill(self):
        if not self._process.stdout.closed:
            self._process.kill()
            self._process.communicate()

    def stop(self):
        self._process.terminate()
        self._process.communicate(timeout=20)
        return self._process.returncode


@pytest.fixture
def server(tmp_path):
    process = Process(tmp_path / "data")
    yield process
    process.kill()
