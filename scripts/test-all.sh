#!/usr/bin/env bash
# Every test but those of the goals test-cluster, test-ci, test-sdk, test-slurm, test-terraform, test-gpu and test-slow:
# test-all.sh [--framework NAME | --only '<id or glob>']; without either, with the images that matrix.toml says `make test`
# builds. A test that cannot run here fails: --require-engine.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

trap - ERR   # what fails here has said why
cd "$TW_ROOT"
trainwright=.venv/bin/trainwright pytest=(.venv/bin/python -m pytest --quiet --require-engine)
images=(scripts/test-images.sh --keep "$@")
[ $# -gt 0 ] || images+=(--by 'make test')

"${images[@]}" --dry-run >/dev/null   # a name that is none ends it here, not after the tests
"$trainwright" lock --check
"$trainwright" lint --require-check
"${pytest[@]}" tests/unit tests/golden -m 'not slurm' --numprocesses auto
# Each file has an engine's image, a registry and a store of its own, and much of it waits: two files at a time.
"${pytest[@]}" tests/scripts tests/engine tests/aws -m 'not slow and not terraform' --numprocesses 2 --dist loadfile
"${images[@]}"
