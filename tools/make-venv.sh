#!/bin/sh
# Make the virtual environment $1 with $PYTHON, and say what is missing when that cannot work.
set -eu
venv=$1
if [ -z "${PYTHON:-}" ]; then
    echo "error: no python3 found; install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: $PYTHON is $("$PYTHON" --version 2>&1), and Python 3.11 or newer is needed" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian ships Python without these two modules.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python3-venv, which Debian keeps apart from python3"
        apt-get install -y -qq python3-venv >/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; }
    else
        echo "error: $PYTHON has no venv module; run: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
"$PYTHON" -m venv "$venv"
