#!/bin/sh
# Makes sure that the tests of the live view and of metrics have their programs: Chromium, Prometheus and axe-core, which
# checks that pages are accessible. Fetches by apt and npm what is missing.
# WORLDLOOM_SKIP_BROWSER=1 leaves everything as it is.
set -eu
cd "$(dirname "$0")/.."

PACKAGES="chromium fonts-liberation prometheus"
AXE=build/axe/node_modules/axe-core/axe.min.js
POLICY=/usr/sbin/policy-rc.d

say() { echo "setup: $*" >&2; }
is_root() { [ "$(id -u)" = 0 ]; }
has() { command -v "$1" >/dev/null; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }
had_prometheus=no
if has prometheus; then had_prometheus=yes; fi
has_programs() { has chromium && has prometheus && has promtool; }

# The package of Prometheus comes with a service. It is not started, now or with the machine: tests run their own. One that
# was there before stays as it is.
without_services() {
    if [ -e $POLICY ]; then "$@"; return; fi
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$POLICY && chmod 755 $POLICY"
    status=0
    "$@" || status=$?
    as_root rm -f $POLICY
    if [ $had_prometheus = no ] && has prometheus && [ -d /run/systemd/system ]; then as_root systemctl --quiet disable prometheus || true; fi
    return $status
}

install_by_apt() {
    say "fetching $* by apt"
    # One unreachable source among many is no reason to stop: the install tells whether it mattered.
    as_root apt-get -qq update || true
    without_services as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends "$@" >/dev/null
}

explain() {
    say "chromium, prometheus, promtool or $AXE is still missing. What provides them:"
    say "  Debian   apt-get install $PACKAGES npm"
    say "           npm install --prefix build/axe axe-core@4 --no-save"
    say "  others   their packages of Chromium, Prometheus and npm, with programs by these names on the path"
    say "Or leave out the tests that need them: WORLDLOOM_SKIP_BROWSER=1 make test"
    exit 1
}

if [ "${WORLDLOOM_SKIP_BROWSER:-}" = 1 ]; then exit; fi
if has_programs && [ -e $AXE ]; then exit; fi
if has apt-get && { is_root || has sudo; }; then
    has_programs || install_by_apt $PACKAGES || explain
    [ -e $AXE ] || has npm || install_by_apt npm || explain
fi
has_programs || explain
if [ ! -e $AXE ]; then
    has npm || explain
    say "fetching axe-core by npm into build/axe"
    npm install --prefix build/axe axe-core@4 --no-save --silent >/dev/null || explain
fi
