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
"$PYTHON" -m venv --without-pip "$venv"
# The pip that Python brings, unpacked: ensurepip installs the same by running it, which takes ten times as long.
"$venv/bin/python" - <<'END' || "$venv/bin/python" -m ensurepip --default-pip
import ensurepip, glob, os, sys, sysconfig, zipfile
places = sysconfig.get_config_var("WHEEL_PKG_DIR"), os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
found = [file for place in places if place for file in glob.glob(f"{glob.escape(place)}/pip-*.whl")]
if not found:
    sys.exit(1)
with zipfile.ZipFile(found[0]) as wheel:
    wheel.extractall(sysconfig.get_path("purelib"))
END
