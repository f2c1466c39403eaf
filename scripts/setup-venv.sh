#!/bin/sh
# Makes .venv and installs worldloom into it, editable and with the development tools.
#   usage: scripts/setup-venv.sh [PYTHON]
set -eu
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }
works() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in "$@" python3 python3.14 python3.13 python3.12 python3.11; do
        if works "$candidate"; then echo "$candidate"; return; fi
    done
    fail "Python 3.11 or newer is needed, with pip. If it goes by another name: make PYTHON=/path/to/python"
}

# Debian and Ubuntu leave the half of venv that brings pip to another package. virtualenv does the same job, and pip can
# get it without root and without touching the system's packages.
make_venv() {
    rm -rf .venv
    "$1" -m venv .venv >/dev/null 2>&1 && return
    rm -rf .venv
    say "this Python cannot make a virtual environment by itself; fetching virtualenv into build/"
    "$1" -m pip install --quiet --target build/virtualenv --upgrade virtualenv \
        && PYTHONPATH=build/virtualenv "$1" -m virtualenv --quiet .venv \
        || fail "that failed too. On Debian and Ubuntu: apt-get install python3-venv"
}

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export PYTHONWARNINGS=ignore  # setuptools warns of every editable install; errors still show
if ! works .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python "$@")
    say "making .venv with $("$python" --version)"
    make_venv "$python"
fi
say "installing worldloom and its tools into .venv (the first time this takes a minute)"
.venv/bin/python -m pip install --quiet --editable '.[dev]'
