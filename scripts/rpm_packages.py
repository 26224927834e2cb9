"""Runs inside a finished image with rpm, and prints as JSON what rpm says is installed. Judges nothing."""

import json
import subprocess

FORMAT = r"%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE} %{ARCH}\n"


def packages():
    """Return the packages of rpm's database; raise CalledProcessError if it cannot be read."""
    listed = subprocess.run(["rpm", "--query", "--all", "--queryformat", FORMAT], stdout=subprocess.PIPE, check=True)
    rows = (line.split() for line in listed.stdout.decode().splitlines())
    return [{"name": name, "version": version, "architecture": machine} for name, version, machine in rows]


if __name__ == "__main__":
    print(json.dumps(packages()))
