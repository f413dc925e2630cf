#!/bin/sh
# The tests, in five passes: on all cores those that do not mind others beside them, then three at a
# time those that mostly wait, three at a time those that look at times more closely, and one by one
# those that want the machine for themselves. Those that only compute run beside the first two, at the
# lowest priority: on what waiting leaves; they stand still in the next two, and what is left of them
# comes last. Places and markers tell which these are (tests/conftest.py). Arguments are pytest's and
# go to all of them: `make test ARGS="tests/core -k cancel"`.
#
# SPILLOVER_SKIPS is a file to keep a list of those that were not tried in: reason, tab, test. `--again`
# takes a file that names tests.
#
# SPILLOVER_COMPUTES is a file to make once nothing but those that only compute is left: who made it
# so may use what these leave (.ci/run).
#
# What fails has failed. Only tests marked `realtime`, whose limits are those of real time, are run
# once more by themselves, and that counts; the end of the log lists those that failed at first, and
# counts those that were not tried, by what they want.
#
# Plain .venv/bin/pytest runs all of them in one process.
set -eu
cd "$(dirname "$0")/.."

failures=$(mktemp -d)
skips=${SPILLOVER_SKIPS:-$(mktemp)} # why tests were not tried and which, a line each
status=0
without_tests=0
computed=$(mktemp) # what those say that compute
meanwhile=

finish() {
    code=$?
    trap - EXIT
    if [ -n "$meanwhile" ]; then
        kill -TERM -"$meanwhile" 2>/dev/null || kill "$meanwhile" 2>/dev/null || :
        kill -CONT -"$meanwhile" 2>/dev/null || :
    fi
    if [ -n "$(cat "$failures"/* 2>/dev/null)" ]; then
        echo "spillover: these are bound to real time, and failed at first:"
        sed 's/^/  /' "$failures"/*
    fi
    if [ -s "$skips" ]; then
        echo "spillover: not tried, for want of what is named (.ci/run installs all of it on Debian, as root):"
        cut -f 1 "$skips" | sort | uniq -c | sort -rn
    fi
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
    case $code in
        1) status=1 ;;
        5) without_tests=$((without_tests + 1)) ;; # none of those asked for is of this kind
    esac
}

# As many workers as are told to tests, in whose eyes they take nothing (tests/support/waiting.py).
# One test may stand still for long. They are a session, and so a process group, of their own.
begin_meanwhile() {
    export SPILLOVER_MEANWHILE=2
    .venv/bin/pytest --only=meanwhile --skips="$skips" -p no:schemathesis -o timeout=1200 \
        --numprocesses=$SPILLOVER_MEANWHILE --dist=loadscope --no-loadscope-reorder "$@" \
        >"$computed" 2>&1 &
    meanwhile=$!
}

stop_meanwhile() {
    kill -STOP -"$meanwhile" 2>/dev/null || : # it has ended
    unset SPILLOVER_MEANWHILE
}

end_meanwhile() {
    code=0
    kill -CONT -"$meanwhile" 2>/dev/null || :
    if [ -n "${SPILLOVER_COMPUTES:-}" ]; then : >"$SPILLOVER_COMPUTES"; fi
    wait "$meanwhile" || code=$?
    meanwhile=
    echo "spillover: meanwhile, those that only compute:"
    cat "$computed"
    go_on
    count
}

# pass KIND FILE ARGUMENT...: the tests of this kind. Those listed in the file are to run again.
pass() {
    kind=$1 again=$failures/$1
    shift
    # Its tests are of the first kind, and to load it takes a worker half a second.
    [ "$kind" = together ] || set -- -p no:schemathesis "$@"
    : >"$again"
    run --only="$kind" --first-failures="$again" "$@"
    count
}

# again KIND ARGUMENT...: what failed of it and is bound to real time, by itself. Other kinds are not
# even read, which takes as long as most of these tests.
again() {
    kind=$1 file=$failures/$1
    shift
    [ -s "$file" ] || return 0
    echo "spillover: once more, by themselves: tests bound to real time"
    run --only="$kind" "$@" --again="$file"
    [ "$code" -eq 0 ] || status=1
}

begin_meanwhile "$@"
pass together --numprocesses=auto --dist=loadscope --no-loadscope-reorder "$@"
again together "$@"
pass threes --numprocesses=3 --dist=loadscope --no-loadscope-reorder "$@"
again threes "$@"
stop_meanwhile
pass quiet --numprocesses=3 --dist=loadscope --no-loadscope-reorder "$@"
again quiet "$@"
pass alone "$@"
again alone "$@"
end_meanwhile
if [ "$without_tests" -eq 5 ]; then exit 5; fi
if [ "$#" -eq 0 ] && [ "$without_tests" -gt 0 ]; then exit 5; fi # each kind has tests
exit "$status"
