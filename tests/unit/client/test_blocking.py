"""The client for programs without Trio: its thread ends, and no call waits for one that has."""

from __future__ import annotations

import os
import threading
import warnings

import pytest
import trio

from barnabas.client import Client, ClosedError
from barnabas.client.blocking import BlockingClient

NOBODY = "127.0.0.1:1"


async def sleep_forever(client: Client) -> None:
    await trio.sleep_forever()


def test_a_closed_client_says_so() -> None:
    client = BlockingClient(NOBODY)
    client.close()
    client.close()
    with pytest.raises(ClosedError, match="is closed"):
        client.run(sleep_forever)


def test_closing_ends_what_other_threads_wait_for() -> None:
    client = BlockingClient(NOBODY)
    entered, errors = threading.Event(), []

    async def wait(inner: Client) -> None:
        entered.set()
        await trio.sleep_forever()

    def ask() -> None:
        try:
            client.run(wait)
        except ClosedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    entered.wait()
    client.close()
    thread.join()
    assert errors == ["the client is closed"]


def test_what_the_work_raises_comes_out() -> None:
    client = BlockingClient(NOBODY)

    async def fail(inner: Client) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        client.run(fail)
    client.close()


def test_a_forked_process_is_told_to_open_its_own() -> None:
    client = BlockingClient(NOBODY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: what this is about
        child = os.fork()
    if not child:
        status = 1
        try:
            client.run(sleep_forever)
        except ClosedError:
            client.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.close()


def test_addresses_that_are_none_start_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="bootstrap"):
        BlockingClient("nowhere")
    assert threading.active_count() == before
