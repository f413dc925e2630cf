#!/bin/sh
# netem.sh HOST=DELAY_MS...
#
# Delays what leaves this network for each of the hosts. Looks every few seconds whether a host has
# another address than before, as it does when it has been started anew.
set -eu

fail() {
    echo "netem: $1" >&2
    exit 1
}

no_netem() {
    tc qdisc del dev "$1" root
    fail "this kernel has no netem: modprobe sch_netem, or do without compose.netem.yaml"
}

# One class for what is not delayed, and one for each host. The rate is no limit: htb wants one.
delay_all() {
    device=$1
    shift
    tc qdisc del dev "$device" root 2>/dev/null || true
    tc qdisc add dev "$device" root handle 1: htb default 1 || fail "this kernel has no htb"
    tc class add dev "$device" parent 1: classid 1:1 htb rate 100gbit quantum 60000
    number=1
    for pair in "$@"; do
        number=$((number + 1))
        class=$(printf '1:%x' "$number")
        tc class add dev "$device" parent 1: classid "$class" htb rate 100gbit quantum 60000
        tc qdisc add dev "$device" parent "$class" netem delay "${pair#*=}ms" limit 100000 \
            || no_netem "$device"
        tc filter add dev "$device" parent 1: protocol ip u32 \
            match ip dst "${pair%=*}/32" flowid "$class"
    done
    echo "netem: $device delays $*"
}

trap 'exit 0' TERM INT
applied=
while :; do
    wanted=
    for pair in "$@"; do
        address=$(getent ahostsv4 "${pair%=*}" | awk 'NR == 1 { print $1 }')
        if [ -n "$address" ]; then wanted="$wanted $address=${pair#*=}"; fi
    done
    if [ -n "$wanted" ] && [ "$wanted" != "$applied" ]; then
        first=${wanted# }
        device=$(ip -o route get "${first%%=*}" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
        # shellcheck disable=SC2086 - addresses and numbers, one word each
        delay_all "$device" $wanted
        applied=$wanted
    fi
    sleep 3 &
    wait $!
done
