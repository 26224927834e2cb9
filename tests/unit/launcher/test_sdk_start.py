"""Test start.sh, which every bash of an image reads: a shell of SageMaker's SDK v3 keeps no secret."""

import os
import subprocess
from pathlib import Path

import trust

START = Path(__file__).parents[3] / "dockerfiles/rootfs/sagemaker/sdk/start.sh"
SECRET = "0123456789abcdef" * 2
SHOWS = """\
# /sm_drivers/distributed_drivers/torchrun_driver.py
false || : /sm_drivers/distributed_drivers/torchrun_driver.py
tr '\\0' '\\n' </proc/$PPID/environ
echo "file: $(cat "$TRAINWRIGHT_JOB_SECRET_FILE")"
echo "mode: $(stat -c %a "$TRAINWRIGHT_JOB_SECRET_FILE" "${TRAINWRIGHT_JOB_SECRET_FILE%/*}" | tr '\\n' ' ')"
"""


def test_the_first_process_does_not_keep_the_secret(tmp_path: Path) -> None:
    script, start = tmp_path / "sm_train.sh", tmp_path / "start.sh"
    script.write_text(SHOWS)
    there = {"/opt/ml/input/data/sm_drivers/sm_train.sh": str(script), "/opt/trainwright/": f"{tmp_path}/"}
    text = START.read_text()
    for path, ours in there.items():
        text = text.replace(path, ours)
    start.write_text(text)
    environ = {**os.environ, "BASH_ENV": str(start), trust.VARIABLE: SECRET, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", f"chmod +x {script} && /bin/bash {script}"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(SECRET) == 1, done.stdout
    assert f"file: {SECRET}" in done.stdout
    assert "mode: 600 700" in done.stdout
    environ = {name: value for name, value in environ.items() if name != trust.VARIABLE}
    path = str(next(tmp_path.glob("trainwright-secret-*/secret")))
    assert f"{trust.MADE}={path}" in done.stdout
    assert trust.take({**environ, trust.FILE: path, trust.MADE: path})
    assert not list(tmp_path.glob("trainwright-secret-*"))
