#!/bin/sh
# Makes .venv at the top of the checkout: every package of requirements.lock, checked against its
# hash, then Spillover itself, editable. Uses uv where there is one; else venv, or virtualenv, and the
# lock's uv, which installs in seconds what takes pip a minute. Where it has no wheel, pip goes on.
# The stamp comes last: a .venv without it was interrupted and is made afresh.
#
#   deploy/setup_venv.sh            the first of python3, python3.14 .. python3.11 that is new enough
#   PYTHON=... deploy/setup_venv.sh this interpreter
set -eu

cd "$(dirname "$0")/.."
venv=.venv
stamp=$venv/.complete

fail() {
    echo "spillover: $1" >&2
    exit 2
}

# A name on the PATH proves nothing (a version manager's shim may fail), so candidates are run.
is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

pick_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON: expected Python 3.11 or newer, got $PYTHON"
        python=$PYTHON
        return
    fi
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$python"; then return; fi
    done
    fail "no Python 3.11 or newer on the PATH; install one, or name it: make PYTHON=/path/to/python"
}

has_uv() { command -v uv >/dev/null 2>&1; }
has_module() { "$1" -c "import $2" >/dev/null 2>&1; }
version_of() { "$1" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null; }

create_venv() {
    if has_uv; then
        uv venv --quiet --python "$python" "$venv"
    elif has_module "$python" ensurepip; then
        "$python" -m venv "$venv"
    elif has_module "$python" venv && has_module "$python" pip; then
        "$python" -m venv --without-pip "$venv" # Debian without python3-venv: pip works from outside
    elif has_module "$python" virtualenv; then
        "$python" -m virtualenv --quiet "$venv"
    else
        fail "$python cannot make virtual environments: apt install python3-venv, or install uv"
    fi
}

take_uv_of_the_lock() {
    has_uv && return
    awk '/^uv==/ {is_uv = 1} is_uv {print} is_uv && !/\\$/ {exit}' requirements.lock >"$venv/uv.lock"
    if install --no-deps --require-hashes --only-binary :all: -r "$venv/uv.lock" 2>/dev/null; then
        PATH=$PATH:$PWD/$venv/bin
    fi
}

# Twice quiet: only errors are shown.
install() {
    if has_uv; then
        uv pip install --quiet --python "$venv/bin/python" "$@"
    elif has_module "$venv/bin/python" pip; then
        "$venv/bin/python" -m pip --disable-pip-version-check install -qq "$@"
    else
        "$python" -m pip --disable-pip-version-check --python "$venv/bin/python" install -qq "$@"
    fi
}

pick_python
if [ -e "$stamp" ] && [ "$(version_of "$venv/bin/python")" = "$(version_of "$python")" ]; then
    echo "spillover: updating $venv" >&2
    rm -f "$stamp"
else
    echo "spillover: making $venv with $("$python" --version)" >&2
    rm -rf "$venv"
    create_venv
fi
take_uv_of_the_lock
echo "spillover: installing the locked packages (up to a minute)" >&2
# Without looking for more: the lock is complete.
install --no-deps --require-hashes -r requirements.lock
install --no-deps --no-build-isolation -e .
touch "$stamp"
