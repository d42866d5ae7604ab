#!/bin/sh
# Start the systemd unit for real, as root: this machine's systemd as the first process of namespaces of its own, on a copy of its
# file system that is in memory as far as it is changed. A record outlives a broker that was killed, and a stop is a clean one.
#     sh deploy/try-unit.sh PYTHON SOURCES      # the interpreter with all packages, and the directory that holds barnabas/
# Exit code 77: it cannot be done here.
set -eu
cd "$(dirname "$0")/.."
SYSTEMD=/lib/systemd/systemd
NOT_NEEDED="systemd-tmpfiles-setup systemd-update-utmp systemd-pcrphase systemd-pcrphase-sysinit systemd-udevd systemd-networkd systemd-resolved"

if [ "$1" = --inside ]; then
    work=$2 python=$3 sources=$4 root=$2/root
    mount -t tmpfs tmpfs "$work"
    mkdir "$work/upper" "$work/inner" "$root"
    mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/inner" overlay "$root" || exit 77
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    if [ -d /sys/fs/cgroup/systemd ]; then
        mkdir "$root/sys/fs/cgroup/systemd"
        mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd" || exit 77
    else
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || exit 77
    fi
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero full random urandom tty; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir -m 1777 "$root/dev/shm"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s /dev/null "$root/dev/console"
    units=$root/etc/systemd/system
    rm -rf "$units"
    mkdir -p "$units" "$root/etc/barnabas" "$root/opt/barnabas/bin"
    for name in $NOT_NEEDED; do ln -s /dev/null "$units/$name.service"; done
    printf '[Unit]\nWants=barnabas.service\n' >"$units/try.target"
    cp deploy/barnabas.service "$units"
    cp deploy/debian/server.properties "$root/etc/barnabas"
    cp -r "$sources" "$root/opt/sources"
    chmod -R a+rX "$root/opt"
    printf '#!/bin/sh\nPYTHONPATH=/opt/sources exec "%s" -m barnabas "$@"\n' "$python" >"$root/opt/barnabas/bin/barnabas"
    chmod 755 "$root/opt/barnabas/bin/barnabas"
    chroot "$root" id barnabas >/dev/null 2>&1 || chroot "$root" useradd --system --home-dir /var/lib/barnabas barnabas
    ip link set lo up
    exec chroot "$root" env -i container=try PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        $SYSTEMD --system --unit=try.target --log-target=null --show-status=0
fi

[ "$(id -u)" = 0 ] || { echo "SKIP: it needs root"; exit 77; }
for program in $SYSTEMD unshare nsenter ip useradd; do
    command -v $program >/dev/null || { echo "SKIP: there is no $program here"; exit 77; }
done
work=$(mktemp -d)
unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net --propagation private \
    sh deploy/try-unit.sh --inside "$work" "$1" "$2" >"$work.log" 2>&1 &
outer=$!
first=

end() { # systemd goes by no signal that `timeout` sends; with it goes all that it has started
    [ -z "$first" ] || kill -KILL "$first" 2>/dev/null || true
    wait $outer || true
    rm -rf "$work" "$work.log"
}
trap end EXIT

inside() {
    nsenter --target "$first" --mount --pid --net --cgroup --root -- env --chdir=/ "$@"
}

fail() {
    inside journalctl --unit barnabas --no-pager --lines 30 || true
    cat "$work.log"
    echo "FAIL: $*"
    exit 1
}

shown() { # shown PROPERTY: what systemd knows of the unit
    inside systemctl show barnabas --property "$1" --value 2>/dev/null || true
}

until_it_is() { # until_it_is WORD COMMAND...: wait for a command to say it
    word=$1 waited=0
    shift
    until [ "$("$@")" = "$word" ]; do
        sleep 0.2
        waited=$((waited + 1))
        if ! kill -0 $outer 2>/dev/null; then
            code=0
            wait $outer || code=$?
            cat "$work.log"
            [ $code = 77 ] && echo "SKIP: these namespaces are not to be had here"
            exit $code
        fi
        [ $waited -lt 600 ] || fail "$* does not say $word"
    done
}

first_process() {
    first=$(pgrep -P $outer -f "^$SYSTEMD" || true)
    [ -n "$first" ] && echo there
}

is_ready() { # is_ready COUNT: that many brokers have said so
    inside journalctl --unit barnabas --no-pager --output cat 2>/dev/null | grep -c "is ready" || true
}

until_it_is there first_process
first=$(pgrep -P $outer -f "^$SYSTEMD")
until_it_is active shown ActiveState
until_it_is 1 is_ready
[ "$(inside ps -o user= -p "$(shown MainPID)")" = barnabas ] || fail "it runs as another user"
barnabas="/opt/barnabas/bin/barnabas"
inside $barnabas topics create tried -b localhost:9092 || fail "no topic can be made"
inside $barnabas produce tried a-record -b localhost:9092 || fail "nothing can be written"
inside kill -KILL "$(shown MainPID)"
until_it_is 2 is_ready
[ "$(inside $barnabas consume tried -b localhost:9092 --count 1)" = a-record ] || fail "the record is not there"
inside systemctl stop barnabas
[ "$(shown ActiveState) $(shown Result)" = "inactive success" ] || fail "its stop is not a clean one"
echo PASS
