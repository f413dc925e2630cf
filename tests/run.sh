#!/bin/sh
# `make test`: the tests that wait on conditions, in two passes. On all cores run those that do not
# mind others beside them, then three at a time those that start whole processes and mostly wait.
# Those that only compute run beside both, at the lowest priority, on what waiting leaves. Places and
# markers tell which these are (tests/conftest.py). Arguments are pytest's and go to all of them:
# `make test ARGS="tests/core -k cancel"`.
#
# `make realtime`, which is `tests/run.sh --realtime`: the tests that are bound to real time, because
# their limits are times or they compare a live run with the simulator. Three run at a time, then one
# by one those that want the machine for themselves.
#
# SPILLOVER_SKIPS is a file to keep a list of those that were not tried in: reason, tab, test. `--again`
# takes a file that names tests.
#
# SPILLOVER_COMPUTES is a file to make once nothing but those that only compute is left: who made it
# so may use what these leave (.ci/run).
#
# What fails has failed. Only tests that start whole processes, and those that are bound to real time,
# are run once more by themselves, and that counts; the end of the log lists those that failed at
# first, and counts those that were not tried, by what they want.
#
# Plain .venv/bin/pytest runs all of them in one process.
set -eu
cd "$(dirname "$0")/.."

realtime=
if [ "${1:-}" = --realtime ]; then
    realtime=1
    shift
fi
failures=$(mktemp -d)
skips=${SPILLOVER_SKIPS:-$(mktemp)} # why tests were not tried and which, a line each
status=0
passes=0
without_tests=0
computed=$(mktemp) # the output of those that compute
meanwhile=

finish() {
    code=$?
    trap - EXIT
    if [ -n "$meanwhile" ]; then
        kill -TERM -"$meanwhile" 2>/dev/null || kill "$meanwhile" 2>/dev/null || :
    fi
    if [ -n "$(cat "$failures"/* 2>/dev/null)" ]; then
        echo "spillover: these failed at first:"
        sed 's/^/  /' "$failures"/*
    fi
    if [ -s "$skips" ]; then
        echo "spillover: not tried, for want of what is named (.ci/run installs all of it on Debian, as root):"
        cut -f 1 "$skips" | sort | uniq -c | sort -rn
    fi
    [ -n "$realtime" ] || echo "spillover: \`make realtime\` has the tests that are bound to real time"
    rm -rf "$failures" "$computed"
    [ -n "${SPILLOVER_SKIPS:-}" ] || rm -f "$skips"
    exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Failures do not keep the next pass from running. All else does: Ctrl-C, -x, a file that cannot be
# collected, a wrong option.
run() {
    code=0
    .venv/bin/pytest --skips="$skips" "$@" || code=$?
    go_on
}

go_on() {
    case $code in
        0 | 1 | 5) ;;
        *) exit "$code" ;;
    esac
}

count() {
    passes=$((passes + 1))
    case $code in
        1) status=1 ;;
        5) without_tests=$((without_tests + 1)) ;; # none of those asked for is of this kind
    esac
}

# As many workers as are told to tests, in whose eyes they take nothing (tests/support/waiting.py).
# They are a session, and so a process group, of their own.
begin_meanwhile() {
    export SPILLOVER_MEANWHILE=2
    .venv/bin/pytest --only=meanwhile --skips="$skips" -p no:schemathesis -o timeout=1200 \
        --numprocesses=$SPILLOVER_MEANWHILE --dist=loadscope --no-loadscope-reorder "$@" \
        >"$computed" 2>&1 &
    meanwhile=$!
}

end_meanwhile() {
    code=0
    if [ -n "${SPILLOVER_COMPUTES:-}" ]; then : >"$SPILLOVER_COMPUTES"; fi
    wait "$meanwhile" || code=$?
    meanwhile=
    echo "spillover: meanwhile, those that only compute:"
    cat "$computed"
    go_on
    count
}

# pass KIND ARGUMENT...: the tests of this kind, and then by itself what failed of it and may run
# once more. Other kinds are not even read, which takes as long as most of these tests.
pass() {
    kind=$1 again=$failures/$1
    shift
    # Its tests are of the first kind, and to load it takes a worker half a second.
    [ "$kind" = together ] || set -- -p no:schemathesis "$@"
    : >"$again"
    run --only="$kind" --first-failures="$again" "$@"
    count
    [ -s "$again" ] || return 0
    echo "spillover: once more, by themselves:"
    run --only="$kind" "$@" --numprocesses=0 --again="$again"
    [ "$code" -eq 0 ] || status=1
}

if [ -n "$realtime" ]; then
    pass quiet --numprocesses=3 --dist=loadscope --no-loadscope-reorder "$@"
    pass alone "$@"
else
    begin_meanwhile "$@"
    pass together --numprocesses=auto --dist=loadscope --no-loadscope-reorder "$@"
    pass threes --numprocesses=3 --dist=loadscope --no-loadscope-reorder "$@"
    end_meanwhile
fi
if [ "$without_tests" -eq "$passes" ]; then exit 5; fi
if [ "$#" -eq 0 ] && [ "$without_tests" -gt 0 ]; then exit 5; fi # each kind has tests
exit "$status"
