#!/bin/sh
# The tests, in four passes: on all cores those that do not mind others beside them, then three at a
# time those that mostly wait, two at a time those that bear one more, and one by one those that want
# the machine for themselves. Markers tell which these are (tests/conftest.py). Arguments are
# pytest's and go to all of them: `make test ARGS="tests/core -k cancel"`.
#
# What fails has failed. Only tests marked `realtime`, whose limits are those of real time, are run
# once more by themselves, and that counts; the end of the log lists those that failed at first.
#
# Plain .venv/bin/pytest runs all of them in one process.
set -eu
cd "$(dirname "$0")/.."

failures=$(mktemp -d)
status=0
without_tests=0

finish() {
    code=$?
    trap - EXIT
    if [ -n "$(cat "$failures"/* 2>/dev/null)" ]; then
        echo "spillover: these are bound to real time, and failed at first:"
        sed 's/^/  /' "$failures"/*
    fi
    rm -rf "$failures"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Failures do not keep the next pass from running. All else does: Ctrl-C, -x, a file that cannot be
# collected, a wrong option.
run() {
    code=0
    .venv/bin/pytest "$@" || code=$?
    case $code in
        0 | 1 | 5) ;;
        *) exit "$code" ;;
    esac
}

# pass KIND FILE ARGUMENT...: the tests of this kind. Those listed in the file are to run again.
pass() {
    kind=$1 again=$failures/$1
    shift
    # Its tests are of the first kind, and to load it takes a worker half a second.
    [ "$kind" = together ] || set -- -p no:schemathesis "$@"
    : >"$again"
    run --only="$kind" --first-failures="$again" "$@"
    case $code in
        1) status=1 ;;
        5) without_tests=$((without_tests + 1)) ;; # none of those asked for is of this kind
    esac
}

# again KIND ARGUMENT...: what failed of it and is bound to real time, by itself. Other kinds are not
# even read, which takes as long as most of these tests.
again() {
    kind=$1 file=$failures/$1
    shift
    [ -s "$file" ] || return 0
    echo "spillover: once more, by themselves: tests bound to real time"
    run --only="$kind" --again="$file" "$@"
    [ "$code" -eq 0 ] || status=1
}

pass together --numprocesses=auto --dist=loadscope --no-loadscope-reorder "$@"
again together "$@"
pass threes --numprocesses=3 --dist=loadscope --no-loadscope-reorder "$@"
again threes "$@"
pass pairs --numprocesses=2 --dist=loadscope --no-loadscope-reorder "$@"
again pairs "$@"
pass alone "$@"
again alone "$@"
if [ "$without_tests" -eq 4 ]; then exit 5; fi
if [ "$#" -eq 0 ] && [ "$without_tests" -gt 0 ]; then exit 5; fi # each kind has tests
exit "$status"
