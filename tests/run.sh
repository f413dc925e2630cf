#!/bin/sh
# `make test`: all tests but those that are bound to real time, in one run of pytest.
# `make realtime`, which is `tests/run.sh --realtime`: those of tests/realtime, three at a time, then
# one by one those that want the machine for themselves: of tests/realtime/alone and tests/containers.
# Arguments are pytest's: `make test ARGS="tests/core -k cancel"`.
#
# What fails has failed. Only tests that start whole processes, and those that are bound to real time,
# are run once more by themselves, and that counts, unless it was the end of a fixture that failed,
# which others may share. The end of the log lists those that failed at first, and counts those that
# were skipped, by what they want. SPILLOVER_SKIPS is a file to keep a list of these in: reason, tab,
# test.
#
# Plain .venv/bin/pytest runs all of them in one process.
set -eu
cd "$(dirname "$0")/.."

run_again='^tests/(containers|dashboards|e2e|realtime)/'
lists=$(mktemp -d)
skips=${SPILLOVER_SKIPS:-$lists/skips} # why tests were skipped and which, a line each
status=5                               # pytest's where it has found no test
chosen=                                # whether arguments choose some of the tests
for word; do case $word in --realtime | --durations=*) ;; *) chosen=yes ;; esac; done

finish() {
    code=$?
    trap - EXIT
    if [ -s "$lists/again" ]; then
        echo "spillover: these failed at first:"
        sed 's/^/  /' "$lists/again"
    fi
    if [ -s "$skips" ]; then
        echo "spillover: skipped, for want of what is named (.ci/run installs all of it on Debian, as root):"
        cut -f 1 "$skips" | sort | uniq -c | sort -rn
    fi
    rm -rf "$lists"
    exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# run ARGUMENT...: the tests, then by itself what failed and may run once more. Failures do not keep
# the next ones from running. All else does: Ctrl-C, a file that cannot be collected, a wrong option.
run() {
    : >"$lists/failed"
    code=0
    .venv/bin/pytest --skips="$skips" --failures="$lists/failed" "$@" || code=$?
    case $code in
        0) [ "$status" -eq 1 ] || status=0 ;;
        1)
            if grep -qvE "$run_again" "$lists/failed" || [ ! -s "$lists/failed" ]; then status=1; fi
            grep -E "$run_again" "$lists/failed" >"$lists/once-more" || return 0
            cat "$lists/once-more" >>"$lists/again"
            echo "spillover: once more, by themselves:"
            if ! .venv/bin/pytest --skips="$skips" "@$lists/once-more"; then status=1; fi
            [ "$status" -eq 1 ] || status=0
            ;;
        5) [ -n "$chosen" ] || status=1 ;;
        *) exit "$code" ;;
    esac
}

if [ "${1:-}" = --realtime ]; then
    shift
    # Each deselects what the other runs, where arguments name it.
    run -o testpaths=tests/realtime --ignore=tests/realtime/alone \
        --deselect=tests/realtime/alone/ --deselect=tests/containers/ \
        --numprocesses=3 --dist=loadfile --no-loadscope-reorder "$@"
    run -o testpaths="tests/realtime/alone tests/containers" --deselect=tests/realtime/test_ "$@"
else
    run --ignore=tests/realtime --ignore=tests/containers \
        --deselect=tests/realtime/ --deselect=tests/containers/ \
        --numprocesses=auto --dist=loadfile --no-loadscope-reorder "$@"
    echo "spillover: \`make realtime\` has the tests that are bound to real time"
fi
exit "$status"
