#!/bin/sh
# Makes .venv-peers: the other ways to get pixels that `make bench-peers` runs beside worldloom, in an environment of
# their own. `make bench` measures some of them too where it is there; nothing else needs it.
#   usage: scripts/setup-peers.sh    (after scripts/setup-venv.sh)
set -eu
cd "$(dirname "$0")/.."

PEERS="envpool==1.2.5 vizdoom==1.3.2 miniworld==2.1.0 mujoco==3.17.0"
QT=pyqt5-qt5==5.15.19  # just its libraries, which EnvPool's Procgen draws with
LIBRARIES="libGL.so.1 libGLU.so.1 libgthread-2.0.so.0"  # what Qt and MiniWorld want of the system
PACKAGES="libgl1 libglu1-mesa libglib2.0-0"

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }
works() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }

find_python() {
    for candidate in .venv/bin/python python3.13 python3.12 python3.11; do
        if works "$candidate"; then echo "$candidate"; return; fi
    done
    fail "Python 3.11, 3.12 or 3.13 is needed for $PEERS: install one of them as python3.11, python3.12 or python3.13"
}

has() { command -v "$1" >/dev/null; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
has_libraries() { .venv-peers/bin/python -c 'import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]' $LIBRARIES; }

get_libraries() {
    if has_libraries 2>/dev/null; then return; fi
    if has apt-get && { [ "$(id -u)" = 0 ] || has sudo; }; then
        say "fetching $PACKAGES by apt"
        as_root apt-get -qq update || true
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $PACKAGES >/dev/null
    fi
    has_libraries || fail "the peers draw with $LIBRARIES: install them. On Debian and Ubuntu: apt-get install $PACKAGES"
}

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
say "making .venv-peers with $PEERS (this takes a minute or two)"
python=$(find_python)
rm -rf .venv-peers
"$python" -m venv --without-pip .venv-peers
.venv/bin/python -m pip --python .venv-peers/bin/python install --quiet $PEERS $QT
get_libraries
