"""The command line: parse, call, show. Data to standard output, everything else to standard error."""

import os
import signal
import sys
import traceback
from typing import Annotated

import typer

from trainwright import __version__
from trainwright.commands import (  # noqa: F401  # they register their commands
    deriving,
    emitting,
    following,
    gating,
    launching,
    lifecycle,
    looking,
    making,
    measuring,
    pipelining,
    rebuilding,
    releasing,
    repositories,
    running,
    submitting,
)
from trainwright.commands.options import app
from trainwright.errors import ConfigError, TrainwrightError


def main() -> None:
    """Run, and turn every expected failure into one message and its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also where SIGINT is ignored, as under nohup
    command = typer.main.get_command(app)
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = command.main(standalone_mode=False, prog_name="trainwright")
    except TrainwrightError as error:
        from trainwright import report

        report.complain(error, as_json="--json" in sys.argv)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if isinstance(error, typer.TyperException):  # a wrong option: typer says which, and how it is used
            from trainwright import report

            context = getattr(error, "ctx", None)  # of the command that was used wrongly
            fix = f"{context.command_path if context else 'trainwright'} --help"
            report.complain(ConfigError(error.format_message(), fix=fix), as_json="--json" in sys.argv)
            code = 2
        else:
            traceback.print_exc()
            code = 1
    if code == 130:  # typer makes this of Ctrl-C; what is left, or goes on, the command has said
        print("\ninterrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


if __name__ == "__main__":
    main()
