"""python restart.py SOCKET term|kill: ask the matrix to restart the broker; ends when it serves again.

The rule: standard library only and no imports from the project, since clients run it from anywhere.
"""

import socket
import sys


def main(path: str, how: str) -> str | None:
    """Ask for the restart; return what went wrong, or None."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(how.encode() + b"\n")
        answer = connection.makefile().readline().strip()
    return None if answer == "ok" else answer or "the matrix has ended"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
