#!/bin/sh
# Brings the testbed of compose.yaml up: all of it, or the services that are named.
#
#   deploy/testbed.sh                          the clusters, Redis, Prometheus and Grafana
#   deploy/testbed.sh node-a node-b redis      these
#   SPILLOVER_PORT_A=9101 deploy/testbed.sh    at another port
#
# `docker compose up --wait` does the same; this says what to do where something is missing.
set -eu
cd "$(dirname "$0")"

oldest=1.29

say() { echo "testbed: $1" >&2; }
fail() {
    say "$1"
    exit "${2:-1}"
}

# The words that start compose: the plugin of v2, or the command of v1.
if ! command -v docker >/dev/null; then
    fail "expected the command docker: install Docker (docs.docker.com/engine/install), or try \
without containers: make demo" 2
elif ! docker info >/dev/null 2>&1; then
    fail "expected a Docker engine that answers: start it (sudo systemctl start docker), and see \
that you may use it: docker info" 2
elif version=$(docker compose version --short 2>/dev/null); then
    compose="docker compose"
elif version=$(docker-compose version --short 2>/dev/null); then
    compose="docker-compose"
else
    fail "expected compose: install the package docker-compose-plugin, docker-compose-v2 or \
docker-compose" 2
fi

# Builds of developers call themselves "dev", or nothing at all: they are new.
is_old() {
    number=${1#v}
    major=${number%%[!0-9]*}
    rest=${number#"$major".}
    minor=${rest%%[!0-9]*}
    [ -n "$major" ] || return 1
    [ "$major" -lt 1 ] || { [ "$major" -eq 1 ] && [ "${minor:-0}" -lt 29 ]; }
}
if is_old "$version"; then
    fail "expected compose $oldest or newer, got $version: install docker-compose-plugin" 2
fi

# v1 and the first of v2 cannot wait: their `ps` tells.
wait=--detach
case $($compose up --help 2>&1) in *--wait*) wait=--wait ;; esac

said=$(mktemp)
trap 'rm -f "$said" "$said.status"' EXIT
{
    status=0
    $compose up "$wait" "$@" 2>&1 || status=$?
    echo "$status" >"$said.status"
} | tee "$said" >&2
if [ "$(cat "$said.status")" -eq 0 ]; then
    if [ "$wait" = --detach ]; then
        say "this compose cannot wait: $compose -f deploy/compose.yaml ps tells when all are healthy"
    fi
    say "up: cluster a at http://127.0.0.1:${SPILLOVER_PORT_A:-8101}, the others at the ports after it"
    say "load: $compose -f deploy/compose.yaml run --rm load"
    say "down again: $compose -f deploy/compose.yaml --profile load --profile leases down -v"
    exit 0
fi

# Which variable of compose.yaml stands for this port now.
variable_of() {
    sed -n 's/.*127\.0\.0\.1:${\([A-Z0-9_]*\):-\([0-9]*\)}.*/\1 \2/p' compose.yaml |
        while read -r name usual; do
            eval "now=\${$name:-$usual}"
            if [ "$now" = "$1" ]; then echo "$name"; fi
        done
}

if grep -Eq 'port is already allocated|address already in use' "$said"; then
    port=$(grep -Eo '127\.0\.0\.1:[0-9]+' "$said" | head -1)
    port=${port##*:}
    variable=$(variable_of "$port")
    fail "port $port of 127.0.0.1 is in use: set ${variable:-its variable in compose.yaml} to one \
that is free, here or in deploy/.env: ${variable:-VARIABLE}=PORT make testbed"
elif grep -Eq 'no such host|pull access denied|manifest unknown|[Tt]imeout|connection refused' "$said"; then
    fail "an image could not be had, see above which; name the services to start without it: \
make testbed ARGS='node-a node-b node-c node-d node-e redis prometheus'"
fi
fail "it did not come up: see above, and $compose -f deploy/compose.yaml logs"
