#!/usr/bin/env bash
# The virtual environment .venv out of requirements.lock: every file hashed, from wherever pip is configured to look.
# Safe to be interrupted: the marker is written last, and the next run starts over.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=${1:-python3}
cd "$TW_ROOT"
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  die "$TW_ENVIRONMENT" "$python is not Python 3.11 or newer" "the project's own tool needs it" "make setup PYTHON=/path/to/python3.11"
fi
say "setting up .venv from requirements.lock"
rm -f .venv/.complete
"$python" -m venv .venv >/dev/null ||
  die "$TW_ENVIRONMENT" "$python cannot make a virtual environment" "its venv or ensurepip is missing" "apt-get install python3-venv"
# pip names each index that lacks a package; only its errors are of interest here
.venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock 2> >(grep -v '^WARNING: Location' >&2)
.venv/bin/python -m pip install --quiet --no-index --no-deps --no-build-isolation -e .
touch .venv/.complete
