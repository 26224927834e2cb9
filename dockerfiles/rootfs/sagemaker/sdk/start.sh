# shellcheck shell=bash
# Version 3 of SageMaker's SDK replaces the entrypoint: `/bin/bash -c "chmod ... && .../sm_train.sh"`. Every bash that is
# no terminal reads this file (BASH_ENV); for that one command alone it does something:
# - where the script calls one of the SDK's drivers, `python3` is the one beside this file, which has our launcher do the
#   driver's work; and SIGTERM, which the kernel keeps from a first process that does not ask for it, reaches the launcher;
# - where it runs a command of the user's, the launcher runs all of it, on each host by itself.
# TRAINWRIGHT_SDK_DRIVERS=own in the job's environment: the SDK's drivers do it all, and of the image's own only SIGTERM.
script=/opt/ml/input/data/sm_drivers/sm_train.sh
if [[ ${BASH_EXECUTION_STRING-} == *"$script"* ]]; then
  if [[ -n ${TRAINWRIGHT_JOB_SECRET-} && -z ${TRAINWRIGHT_JOB_SECRET_FILE-} ]] && folder=$(mktemp -d -t trainwright-secret-XXXXXXXX) &&
    (umask 077 && printf %s "$TRAINWRIGHT_JOB_SECRET" >"$folder/secret"); then
    # /proc shows what a bash was started with as long as it runs: this one ends here. The launcher removes what was MADE.
    unset TRAINWRIGHT_JOB_SECRET
    export TRAINWRIGHT_JOB_SECRET_FILE=$folder/secret TRAINWRIGHT_JOB_SECRET_MADE=$folder/secret
    exec /bin/bash -c "$BASH_EXECUTION_STRING"
  fi
  unset BASH_ENV
  entrypoint=() # what the SDK has replaced, in images with CUDA
  [[ ! -x /opt/trainwright/bin/with-cuda ]] || entrypoint=(/opt/trainwright/bin/with-cuda)
  if [[ ${TRAINWRIGHT_SDK_DRIVERS-} != own ]]; then
    if ! grep -q '^[^#]*/sm_drivers/distributed_drivers/' "$script"; then
      exec "${entrypoint[@]}" /usr/local/bin/trainwright-launch --distribution plain /bin/bash -c "$BASH_EXECUTION_STRING"
    fi
    export PATH=/opt/trainwright/sdk:$PATH TRAINWRIGHT_LAUNCHER_PID=/run/trainwright-launcher.pid
  fi
  set -m # the SDK's script and what it starts are a group, to be stopped together as long as no launcher runs
  "${entrypoint[@]}" /bin/bash -c "$BASH_EXECUTION_STRING" &
  job=$!
  trap '{ kill -TERM "$(<"${TRAINWRIGHT_LAUNCHER_PID-}")" || kill -TERM -- "-$job"; } 2>/dev/null' TERM INT
  code=0 && wait "$job" || code=$?
  while kill -0 "$job" 2>/dev/null; do # a signal ends `wait`, but not what it waits for
    code=0 && wait "$job" || code=$?
  done
  exit "$code"
fi
unset script
