#!/bin/sh
# Install the package of logins with Kerberos into the environment of the Python $1, where this machine can compile it, and make
# the file $2. With CI=true what that needs, and a key distribution centre, are installed first, if root runs this. Elsewhere the
# tests that need what is missing are skipped and say so.
set -eu
python=$1 done=$2
can_compile() {
    command -v krb5-config >/dev/null && command -v gcc >/dev/null &&
        "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}
has_centre() {
    (PATH="$PATH:/usr/sbin" && command -v krb5kdc && command -v kadmin.local && command -v kinit) >/dev/null
}
if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { can_compile && has_centre; }; then
    packages="gcc python3-dev libkrb5-dev krb5-kdc krb5-admin-server"
    echo "installing $packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq $packages >/dev/null || { apt-get update -qq && apt-get install -y -qq $packages >/dev/null; }
fi
if can_compile; then
    if "$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/kerberos.txt; then
        touch "$done"
    elif [ "${CI:-}" = true ]; then
        exit 1
    fi
fi
