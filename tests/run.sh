#!/bin/sh
# The tests, in three passes: on all cores those that do not mind others beside them, then two at a
# time those that mostly wait, then one by one those that want the machine for themselves.
# tests/conftest.py knows which these are. Arguments are pytest's and go to all of them:
# `make test ARGS="tests/core -k cancel"`.
#
# What fails is run once more by itself, and that counts: some tests look too soon on a machine with
# too much to do. Their first failure stays in the log, to be read and mended.
#
# Plain .venv/bin/pytest runs all of them in one process.
set -eu
cd "$(dirname "$0")/.."

status=0
without_tests=0

# Failures do not keep the next pass from running. All else does: Ctrl-C, -x, a file that cannot be
# collected, a wrong option.
run() {
    code=0
    .venv/bin/pytest "$@" || code=$?
    case $code in
        0) ;;
        1) status=1 ;;
        5) without_tests=$((without_tests + 1)) ;; # none of those asked for is of this kind
        *) exit "$code" ;;
    esac
}

# twice KIND OPTION...: the tests of this kind, and what fails of them again.
twice() {
    kind=$1
    shift
    run --only="$kind" "$@"
    [ "$status" -eq 1 ] || return 0
    echo "spillover: once more, by itself: what failed"
    status=0
    shift "$options"
    run --only="$kind" --last-failed "$@"
    failed=$((failed + status))
    status=0
}

failed=0
options=2
twice together --numprocesses=auto --dist=worksteal "$@"
twice in-pairs --numprocesses=2 --dist=loadscope "$@"
options=0
twice alone "$@"
if [ "$without_tests" -eq 3 ]; then exit 5; fi
[ "$failed" -eq 0 ]
