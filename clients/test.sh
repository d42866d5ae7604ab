#!/bin/sh
# Run the tests of the helpers: of those that are named, or of all whose toolchain is on this machine.
set -e
cd "$(dirname "$0")"
run() {
    name=$1 tool=$2
    shift 2
    if ! command -v "$tool" >/dev/null; then
        echo "$name: skipped, $tool is not here"
        [ -z "$named" ]
        return
    fi
    echo "$name"
    (cd "$name" && sh -c "$*")
}
named=$*
for name in ${named:-java go node rust}; do
    case $name in
    java) run java mvn mvn -B -q test ;;
    go) run go/tests go go test -count=1 ./... ;;
    node) run node npm 'npm ci --silent --no-audit --no-fund && npm test --silent' ;;
    rust) run rust cargo cargo test --quiet --locked ;;
    *) echo "$name: there is no such helper" >&2 && exit 2 ;;
    esac
done
