# shellcheck shell=bash
# Start jobs of version 3 of SageMaker's SDK with the launcher. The SDK replaces the entrypoint by
# `/bin/bash -c "chmod ... && .../sm_train.sh"`. Every non-interactive bash reads this file (BASH_ENV), but it acts only
# on that command:
# - If the SDK's script calls one of its drivers, the python3 beside this file is put on PATH, which starts the launcher
#   instead. SIGTERM is passed on to it, because the kernel drops signals that PID 1 does not handle.
# - If the SDK's script runs a command of the user, the launcher runs the whole script, on each host by itself.
# With TRAINWRIGHT_SDK_DRIVERS=own in the job's environment the SDK's own drivers run; only SIGTERM is still passed on.
script=/opt/ml/input/data/sm_drivers/sm_train.sh
if [[ ${BASH_EXECUTION_STRING-} == *"$script"* ]]; then
  if [[ -n ${TRAINWRIGHT_JOB_SECRET-} && -z ${TRAINWRIGHT_JOB_SECRET_FILE-} ]] && folder=$(mktemp -d -t trainwright-secret-XXXXXXXX) &&
    (umask 077 && printf %s "$TRAINWRIGHT_JOB_SECRET" >"$folder/secret"); then
    # /proc/<pid>/environ shows a process's first environment until exec, so start bash anew without the secret. The
    # launcher removes the file that _MADE names.
    unset TRAINWRIGHT_JOB_SECRET
    export TRAINWRIGHT_JOB_SECRET_FILE=$folder/secret TRAINWRIGHT_JOB_SECRET_MADE=$folder/secret
    exec /bin/bash -c "$BASH_EXECUTION_STRING"
  fi
  unset BASH_ENV
  entrypoint=() # with-cuda, the entrypoint of images with CUDA, which the SDK has replaced
  [[ ! -x /opt/trainwright/bin/with-cuda ]] || entrypoint=(/opt/trainwright/bin/with-cuda)
  if [[ ${TRAINWRIGHT_SDK_DRIVERS-} != own ]]; then
    if ! grep -q '^[^#]*/sm_drivers/distributed_drivers/' "$script"; then
      exec "${entrypoint[@]}" /usr/local/bin/trainwright-launch --distribution plain /bin/bash -c "$BASH_EXECUTION_STRING"
    fi
    export PATH=/opt/trainwright/sdk:$PATH TRAINWRIGHT_LAUNCHER_PID=/run/trainwright-launcher.pid
  fi
  set -m # a process group for the SDK's script, so that all of it can be stopped before the launcher runs
  "${entrypoint[@]}" /bin/bash -c "$BASH_EXECUTION_STRING" &
  job=$!
  trap '{ kill -TERM "$(<"${TRAINWRIGHT_LAUNCHER_PID-}")" || kill -TERM -- "-$job"; } 2>/dev/null' TERM INT
  code=0 && wait "$job" || code=$?
  while kill -0 "$job" 2>/dev/null; do # a signal interrupts `wait` while the job still runs
    code=0 && wait "$job" || code=$?
  done
  exit "$code"
fi
unset script
