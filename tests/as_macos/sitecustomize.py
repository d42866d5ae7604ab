"""Makes each Python process that has this directory in PYTHONPATH see macOS where it runs on Linux.

The rule: what only Linux has is gone from `os`, `select`, `socket`, `fcntl` and the C library before anybody has imported
them, `/proc`, `/sys` and `/dev/shm` are not there, and what macOS has is simulated beside this file, with its own rules.
Trio waits by kqueue. `sys.platform` is Linux's all the same: the standard library below is.
"""

import simulated_kqueue

simulated_kqueue.install()

import simulated_files  # noqa: E402 - it imports `socket`, and with it what chooses between epoll and kqueue

simulated_files.install()
