#!/bin/sh
# Build the image and try it, as root, without a container engine, a registry of images or a daemon:
#     sh deploy/try-container.sh [DIRECTORY]
# The bases are made of Debian's packages (debootstrap), the image by buildah with chroot isolation, and the broker runs in
# network and process namespaces of its own. kcat writes and reads records, and a second start has them still. DIRECTORY is
# kept and used again if it is given. It needs buildah, debootstrap, kcat, and unshare and ip (util-linux and iproute2).
set -eu
cd "$(dirname "$0")/.."
IMAGE=localhost/barnabas

fail() {
    cat "$directory/broker.log" >&2
    echo "FAIL: $*"
    exit 1
}

buildah() {
    command buildah --storage-driver vfs --root "$directory/storage" --runroot "$directory/run" "$@"
}

base() { # base NAME PACKAGES: make an image of Debian's packages, unless it is there
    buildah inspect --type image "localhost/$1" >/dev/null 2>&1 && return
    echo "== $1 of Debian's packages: $2"
    [ -e "$directory/$1/etc/os-release" ] ||
        debootstrap --variant=minbase --include="$2" bookworm "$directory/$1" >"$directory/$1.log" 2>&1
    made=$(buildah from scratch)
    buildah add --quiet "$made" "$directory/$1" / >/dev/null
    buildah commit --quiet "$made" "localhost/$1" >/dev/null
    buildah rm "$made" >/dev/null
}

write() {
    seq 1 1000 | kcat -P -b localhost:9092 -t tried -p 0 -X request.required.acks=-1 || fail "kcat cannot write"
}

read_again() {
    [ "$(kcat -C -b localhost:9092 -t tried -p 0 -o beginning -e -q | md5sum)" = "$(seq 1 1000 | md5sum)" ] ||
        fail "what was written is not what is read"
}

serve() { # serve COMMAND...: start the broker, run the commands beside it, and end it with SIGTERM
    : >"$directory/broker.out"
    # shellcheck disable=SC2086
    buildah run --isolation chroot "$container" -- $entrypoint >"$directory/broker.out" 2>"$directory/broker.log" &
    running=$!
    waited=0
    until grep -q "is ready" "$directory/broker.out"; do
        sleep 0.2
        waited=$((waited + 1))
        kill -0 $running 2>/dev/null && [ $waited -lt 600 ] || fail "it does not start"
    done
    cat "$directory/broker.out"
    for step in "$@"; do $step; done
    broker=$(pgrep -f '^/opt/barnabas/bin/python') || fail "its process is not found"
    echo "it runs as user id $(ps -o uid= -p "$broker" | tr -d ' ')"
    kill -TERM "$broker"
    code=0
    wait $running || code=$?
    [ $code = 0 ] || fail "it ended with $code"
    ! grep -q Traceback "$directory/broker.log" || fail "it has logged a traceback"
}

if [ "${1-}" = --inside ]; then
    directory=$2 container=$3 entrypoint=$4
    ip link set lo up
    serve write read_again
    serve read_again
    exit
fi

for program in buildah debootstrap kcat unshare ip; do
    command -v $program >/dev/null || { echo "SKIP: there is no $program here"; exit 77; }
done
directory=${1:-$(mktemp -d)}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
[ $# -gt 0 ] || trap 'rm -rf "$directory"' EXIT
base barnabas-build python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates
base barnabas-base python3
echo "== buildah build -f deploy/Containerfile"
# The machine's own certificates: pip may have to trust more than Debian does.
buildah build --isolation chroot --quiet --volume /etc/ssl/certs:/etc/ssl/certs:ro \
    --build-arg BUILD_BASE=localhost/barnabas-build --build-arg BASE=localhost/barnabas-base \
    -t $IMAGE -f deploy/Containerfile .
entrypoint=$(buildah inspect --type image --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' $IMAGE)
container=$(buildah from $IMAGE)
echo "== $entrypoint"
unshare --net --pid --fork --mount-proc sh deploy/try-container.sh --inside "$directory" "$container" "$entrypoint"
buildah rm "$container" >/dev/null
echo PASS
