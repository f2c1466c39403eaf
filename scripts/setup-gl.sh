#!/bin/sh
# Makes sure that OpenGL can draw without a screen, and fetches Mesa's software driver by apt where it cannot.
# WORLDLOOM_SKIP_GL=1 leaves everything as it is.
set -eu
cd "$(dirname "$0")/.."

PACKAGES="libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"  # tests/conftest.py tells people the same

say() { echo "setup: $*" >&2; }
probe() { .venv/bin/python scripts/probe_gl.py; }

is_root() { [ "$(id -u)" = 0 ]; }
has() { command -v "$1" >/dev/null; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

install_by_apt() {
    say "fetching $PACKAGES by apt"
    # One unreachable source among many is no reason to stop: the install tells whether it mattered.
    as_root apt-get -qq update || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $PACKAGES >/dev/null
}

explain() {
    say "OpenGL 4.5 by EGL is still missing. What provides it, without a graphics card too:"
    say "  Debian, Ubuntu   apt-get install $PACKAGES"
    say "  Fedora           dnf install mesa-libEGL mesa-libGL mesa-dri-drivers"
    say "  Arch             pacman -S mesa libglvnd"
    say "Or leave OpenGL out: WORLDLOOM_SKIP_GL=1 make test"
    exit 1
}

if [ "${WORLDLOOM_SKIP_GL:-}" = 1 ]; then exit; fi
if probe >/dev/null 2>&1; then exit; fi
if has apt-get && { is_root || has sudo; }; then install_by_apt || explain; fi
probe >/dev/null || explain
