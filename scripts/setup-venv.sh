#!/usr/bin/env bash
# The virtual environment .venv out of requirements.lock: every file hashed, from wherever pip is configured to look.
# Safe to be interrupted: the marker is written last, and without it the next run starts from an empty .venv.
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=${1:-python3}
cd "$TW_ROOT"

complete() { # as make sees it: the marker is there, and nothing that .venv depends on is newer
  local file
  for file in requirements.lock pyproject.toml scripts/setup-venv.sh; do
    if [ "$file" -nt .venv/.complete ]; then return 1; fi
  done
}

# Two goals at once, in two terminals: the lock is on a file of the checkout, so that nothing of it stays behind.
exec 9<requirements.lock
if ! flock -n 9; then
  say "another make sets up .venv; waiting for it"
  flock 9 || say "this file system has no locks: run one make at a time"
fi
if complete; then exit; fi

# --- a Python that can make one --------------------------------------------------------------------------------------

least=$(sed -n 's/^requires-python = ">=\([0-9.]*\)"$/\1/p' pyproject.toml)
version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null) || version=''
if ! at_least "$version" "$least"; then
  die "$TW_ENVIRONMENT" "$python is ${version:-no Python that runs}; Python $least or newer is needed" \
    "make setup PYTHON=/path/to/python$least"
fi

can_make_one() { "$python" -c 'import venv; from ensurepip import version' 2>/dev/null; }

if ! can_make_one; then
  # Debian and Ubuntu keep this half of their Python in a package of its own.
  package=python$(cut -d. -f1,2 <<<"$version")-venv
  if ! have apt-get || [ "$("$python" -c 'import sys; print(sys.base_prefix)')" != /usr ]; then
    die "$TW_ENVIRONMENT" "$python cannot make a virtual environment: its ensurepip is missing" \
      "Install that, or use another Python:  make setup PYTHON=/path/to/python$least"
  fi
  [ "$(id -u)" = 0 ] ||
    die "$TW_ENVIRONMENT" "$python cannot make a virtual environment: $package is not installed" \
      "sudo apt-get install $package"
  say "$python cannot make a virtual environment yet; installing $package with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
  # Most hosts have lists that are fresh enough; a bare container has none.
  "${apt[@]}" install -y --no-install-recommends "$package" >/dev/null 2>&1 ||
    { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$package"; } >&2 || true
  can_make_one || die "$TW_ENVIRONMENT" "apt-get could not install $package" \
    "The lines above are apt's. Is the mirror reachable, the disk full?  apt-get update; df -h /"
fi

# --- .venv -----------------------------------------------------------------------------------------------------------

pip_install() { # what pip prints for people, less what it says of each index that lacks a package
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" 2>&1 |
    { grep -v '^WARNING: Location' >&2 || true; }
}

say "setting up .venv from requirements.lock"
fresh=()
[ -e .venv/.complete ] || fresh=(--clear)
rm -f .venv/.complete
"$python" -m venv "${fresh[@]}" .venv >&2 ||
  die "$TW_ENVIRONMENT" "$python cannot make a virtual environment in $TW_ROOT/.venv" \
    "The lines above say why. Is the disk full, the folder somebody else's?  df -h .; ls -ld . .venv"
pip_install --require-hashes -r requirements.lock ||
  die "$TW_ENVIRONMENT" "pip could not install what requirements.lock names" \
    "The lines above are pip's. No network, or an index that lacks a file:  $python -m pip config list; env | grep -i proxy" \
    "A hash that does not match: that index, or pip's cache, has another file than was locked:" \
    "  .venv/bin/python -m pip cache purge, then run this again; never change the hash unseen"
pip_install --no-index --no-deps --no-build-isolation -e . ||
  die "$TW_ENVIRONMENT" "pip could not install trainwright itself into .venv" \
    "The lines above are pip's. A fresh start:  rm -rf .venv && make setup"
touch .venv/.complete
