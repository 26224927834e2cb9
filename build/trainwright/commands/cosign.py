"""The command that runs cosign: the host's, else the locked one."""

import subprocess

import typer

from trainwright.commands.options import app


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def cosign(context: typer.Context) -> None:
    """Run this host's cosign, else the locked one. `trainwright cosign generate-key-pair` makes a key."""
    from trainwright.core import certificates, process
    from trainwright.publish import sign

    program, bundle = [*sign.program(), *context.args], certificates.bundle()
    code = subprocess.call(program, env=process.environment({"SSL_CERT_FILE": bundle} if bundle else {}))
    raise typer.Exit(code if code >= 0 else 128 - code)  # as a shell says that a signal ended it
