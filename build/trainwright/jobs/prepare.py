"""Write what each host does before its launcher starts: make the model's folder, install requirements.txt. Pure.

SageMaker's toolkit does the same for its jobs, and so does `run`, which starts it. Here it is a shell in front of the
launcher: one for each host, and never one for each rank.
"""

import re
import shlex
from collections.abc import Iterable

from trainwright.core.errors import ConfigError

REQUIREMENTS = "requirements.txt"
MODEL = 'mkdir -p "$SM_MODEL_DIR" || exit'  # the image lacks this folder
# pip reads the image's constraints from /etc/pip.conf, and says which requirement would change torch, NCCL or others.
INSTALL = "[ ! -f {file} ] || python -m pip install --disable-pip-version-check -r {file} || exit"
OTHER_FILE = re.compile(r"\s*(-[rce]\b|--(requirement|constraint|editable)\b|\.{0,2}/|file:|\S+\s*@\s*file:)")


def command(requirements: str, model: bool) -> list[str]:
    """Return the words in front of the launcher's; [] if a host has nothing to do.

    `requirements` is the file's path below the working folder, "" for none; `model`: make the model's folder.
    """
    steps = [MODEL] * model + [INSTALL.format(file=shlex.quote(requirements))] * bool(requirements)
    return ["sh", "-c", "\n".join([*steps, 'exec "$@"']), "sh"] if steps else []


def refuse_other_files(lines: Iterable[str], where: str) -> None:
    """Refuse a requirements file that names files beside it, if it is sent alone. Raises ConfigError."""
    for number, line in enumerate(lines, 1):
        if OTHER_FILE.match(line):
            raise ConfigError(
                f"{REQUIREMENTS} names another file, which is not sent: {line.strip()}",
                where=f"{where}:{number}",
                why="only the script and this file travel in the job's ConfigMap",
                fix="write the packages into it, or --code CLAIM",
            )
