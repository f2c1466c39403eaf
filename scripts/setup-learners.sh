#!/bin/sh
# Makes .venv-learners: worldloom with the learning libraries that `make learners` tests the adaptors with, and beside it
# the oldest Gymnasium that pyproject.toml allows. RLlib wants a Gymnasium of its own, so it has .venv-rllib to itself.
#   usage: scripts/setup-learners.sh [learners|envpool|rllib]    (after scripts/setup-venv.sh)
#   learners: .venv-learners (the default). envpool: EnvPool into it, for the benchmark. rllib: .venv-rllib
set -eu
cd "$(dirname "$0")/.."

TORCH=torch==2.13.0+cpu  # without CUDA, which takes gigabytes
LEARNERS="gymnasium==1.4.0 stable-baselines3==2.9.2 torchrl==0.14.1 tensordict==0.14.3 pettingzoo==1.27.0"
LEARNERS="$LEARNERS moviepy==2.2.1 array-api-compat==1.16.0"  # for Gymnasium's RecordVideo and NumpyToTorch
LEARNERS="$LEARNERS minari[hdf5]==0.5.4 duckdb==2.0.0 polars==2.1.0"  # readers of datasets on docs/collect.md
OLDEST_GYMNASIUM=gymnasium==1.1.0
ENVPOOL=envpool==1.2.5
RLLIB=ray[rllib]==2.60.0
ROBOTICS="gymnasium-robotics==1.4.2"  # tasks for the family gym
MJX="jax==0.10.2 mujoco-mjx==3.17.0"  # for docs/render-your-states.md
TOOLS="pytest==9.2.0 pytest-benchmark==5.3.1 pytest-timeout==2.4.0 pytest-xdist==3.8.0 hypothesis==6.170.15"

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }
works() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }

find_python() {
    for candidate in .venv/bin/python python3.13 python3.12 python3.11; do
        if works "$candidate"; then echo "$candidate"; return; fi
    done
    fail "Python 3.11, 3.12 or 3.13 is needed for $TORCH: install one of them as python3.11, python3.12 or python3.13"
}

make_venv() {
    if works "$1/bin/python"; then return; fi
    python=$(find_python)
    rm -rf "$1"
    "$python" -m venv --without-pip "$1"
}

install() { venv=$1; shift; .venv/bin/python -m pip --python "$venv/bin/python" install --quiet "$@"; }

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export PYTHONWARNINGS=ignore  # setuptools warns of every editable install; errors still show
case "${1:-learners}" in
    learners)
        say "making .venv-learners with $TORCH $LEARNERS (this takes a minute or two)"
        make_venv .venv-learners
        install .venv-learners --editable '.[data,mujoco,report]' $TORCH $LEARNERS $ROBOTICS $MJX $TOOLS
        .venv/bin/python -m pip install --quiet --no-deps --target .venv-learners/oldest-gymnasium $OLDEST_GYMNASIUM ;;
    envpool)
        say "installing $ENVPOOL into .venv-learners"
        install .venv-learners $ENVPOOL ;;
    rllib)
        say "making .venv-rllib with $TORCH $RLLIB (this takes a minute or two)"
        make_venv .venv-rllib
        install .venv-rllib --editable . $TORCH "$RLLIB" $TOOLS ;;
    *) fail "$1: expected learners, envpool or rllib" ;;
esac
