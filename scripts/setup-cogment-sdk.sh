#!/bin/sh
# Makes .venv-cogment: the Cogment SDK that the tests play trials with, in an environment of its own, since it wants a
# protobuf of long ago. Beside it come our messages, generated for that protobuf.
#   usage: scripts/setup-cogment-sdk.sh    (after scripts/setup-venv.sh)
set -eu
cd "$(dirname "$0")/.."

SDK=cogment==0.3.0a8
COMPILER=grpcio-tools==1.62.3  # the last whose code runs with that protobuf

say() { echo "setup: $*"; }
fail() { say "$@" >&2; exit 1; }
works() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; }

find_python() {
    for candidate in .venv/bin/python python3.12 python3.11; do
        if works "$candidate"; then echo "$candidate"; return; fi
    done
    fail "Python 3.11 or 3.12 is needed for $SDK: install one of them as python3.11 or python3.12"
}

install() { .venv/bin/python -m pip --python .venv-cogment/bin/python install --quiet "$@"; }

# dm_env_rpc's messages and those they are made of are not installed there: they come from their descriptors.
generate() {
    packages=$(.venv-cogment/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    descriptors=.venv-cogment/dm_env_rpc.pb
    .venv/bin/python -c 'import pathlib, sys
from scripts.generate_protos import write_descriptors
write_descriptors(pathlib.Path(sys.argv[1]))' "$descriptors"
    .venv-cogment/bin/python -m grpc_tools.protoc --descriptor_set_in="$descriptors" --python_out="$packages" \
        --proto_path=protos/worldloom trials.proto dm_env_rpc/v1/dm_env_rpc.proto google/rpc/status.proto
}

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
say "making .venv-cogment with $SDK (this takes half a minute)"
python=$(find_python)
rm -rf .venv-cogment
"$python" -m venv --without-pip .venv-cogment
install protobuf==3.20.3 'grpcio>=1.60' grpcio-reflection==1.48.2 'setuptools<81'  # distutils, where Python has none
install --no-deps "$SDK" "$COMPILER"
generate
