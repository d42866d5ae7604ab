#!/bin/sh
# Install the package of logins with Kerberos into the environment of the Python $1, where this machine has MIT's headers, and make
# the file $2. With CI=true, headers and a key distribution centre are installed first, if root runs this. Elsewhere the tests
# that need what is missing are skipped and say so.
set -eu
python=$1 done=$2
packages="gcc libkrb5-dev krb5-kdc krb5-admin-server"
if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    if ! command -v krb5-config >/dev/null || ! PATH="$PATH:/usr/sbin" command -v krb5kdc >/dev/null; then
        echo "installing $packages"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086
        apt-get install -y -qq $packages >/dev/null || { apt-get update -qq && apt-get install -y -qq $packages >/dev/null; }
    fi
fi
if command -v krb5-config >/dev/null && command -v gcc >/dev/null; then
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/kerberos.txt
    touch "$done"
fi
