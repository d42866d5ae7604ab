#!/bin/sh
# Have a browser for `make test-browser`, and put axe-core, which judges pages, into $1: the distribution's Chromium, or the one
# that BARNABAS_BROWSER names. With CI=true it is installed, if root runs this; without a browser this fails and says so.
set -eu
folder=$1
find_browser() {
    for name in "${BARNABAS_BROWSER:-}" chromium chromium-browser google-chrome; do
        [ -n "$name" ] && command -v "$name" && return
    done
    return 1
}
if ! find_browser >/dev/null && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium"
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core"
    $install >/dev/null || { apt-get update -qq && $install >/dev/null; }
fi
if ! find_browser >/dev/null; then
    echo "the console's tests need a browser: install Debian's chromium, or name one by BARNABAS_BROWSER" >&2
    exit 1
fi
if ! command -v npm >/dev/null; then
    echo "the console's tests need npm, which brings axe-core: install Node.js" >&2
    exit 1
fi
mkdir -p "$folder"
cp tests/browser/package.json tests/browser/package-lock.json "$folder"
(cd "$folder" && npm ci --silent --no-audit --no-fund)
