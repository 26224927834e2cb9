"""The command line: parse, call, show. Data goes to standard output, everything else to standard error."""

import errno
import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from trainwright import __version__
from trainwright.commands import register
from trainwright.commands.options import app
from trainwright.core.errors import ConfigError, EnvironmentProblem, TrainwrightError, of_this_machine

# Errors of a failed write: full disk, quota or size limit, read-only disk, name already taken.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNWRITABLE = FULL | {errno.EROFS, errno.EEXIST}
DENIED = {errno.EACCES, errno.EPERM}
OF_FILES = UNWRITABLE | DENIED | {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
NO_TEMPORARY = "No usable temporary directory"  # text of tempfile's ENOENT if every temporary directory is full


def main() -> None:
    """Run the command, and turn every expected failure into one message and its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also if SIGINT is ignored, as under nohup
    # Because these imports take longer than `list` itself and we use none of them: pydantic looks for plugins in all
    # packages of .venv, and httpx loads its command line, with click, rich and pygments, where it finds them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as Python documents it: not importable
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    register(sys.argv[1:])
    command = typer.main.get_command(app)
    try:
        code = command.main(standalone_mode=False, prog_name="trainwright")
    except TrainwrightError as error:
        from trainwright.core import console, project

        problem = project.original(of_this_machine(error), Path.cwd())
        console.complain(problem, as_json="--json" in sys.argv)
        code = problem.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno not in OF_FILES and NO_TEMPORARY not in str(error.strerror):
            traceback.print_exc()
            code = 1
        else:
            from trainwright.core import console

            problem = _of_a_file(error)
            console.complain(problem, as_json="--json" in sys.argv)
            code = problem.exit_code
    except Exception as error:
        if isinstance(error, typer.TyperException):  # a wrong option: typer's message names it
            from trainwright.core import console

            context = getattr(error, "ctx", None)  # of the command with the wrong option
            fix = f"{context.command_path if context else 'trainwright'} --help"
            console.complain(ConfigError(error.format_message(), fix=fix), as_json="--json" in sys.argv)
            code = 2
        else:
            traceback.print_exc()
            code = 1
    if code == 130:  # typer's code for Ctrl-C; the command has already reported its state
        print("\ninterrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _of_a_file(error: OSError) -> EnvironmentProblem:
    """Return the error for a file operation that no module handles."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    done = "written" if error.errno in UNWRITABLE or not path else "used"
    if error.errno in DENIED and path and os.access(path.parent, os.X_OK):
        done = "read" if os.access(path, os.F_OK) and not os.access(path, os.R_OK) else "written"
    fix = f"{'df -h' if error.errno in FULL else 'ls -ld'} {shlex.quote(str(path))}" if path else "df -h"
    return EnvironmentProblem(f"a file cannot be {done}", where=str(path or ""), why=str(error.strerror), fix=fix)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


if __name__ == "__main__":
    main()
