"""Make the pictures of docs/pictures that show real output: terminals as SVG, and the matrix page as PNG.

.venv/bin/python scripts/pictures.py [NAME...]   # where images are published as `list` and `plan` should show them

The pictures of `judge --png`, `gate --find` and `diagnose --html` are made by these commands themselves.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
WORK = ROOT / "out/pictures"
COLUMNS = 112
IMAGES = "'jax-*' 'tensorflow-*'"
LOG = "tests/unit/nccl-tests/35_fail_efa_gdr_disabled_socket_fallback_p4d.txt"
JOBS, JOB = "benchmarks/diagnosis/jobs.tar.gz", "order-00"
TERMINALS = {  # picture: what a person types; LOG and JOB lie in the folder beside it
    "list": f"trainwright list {IMAGES}",
    "plan": f"trainwright plan {IMAGES}",
    "judge": "trainwright judge nccl-tests.log",
    "diagnose-job": "trainwright diagnose logs/",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
INK, PAPER = (214, 221, 229), (22, 27, 34)
COLOURS = [
    PAPER,
    (255, 123, 114),
    (86, 211, 100),
    (227, 179, 65),
    (121, 192, 255),
    (210, 168, 255),
    (86, 212, 221),
    INK,
]
THEME = TerminalTheme(PAPER, INK, COLOURS)
OWN_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich names a font of another host


def run(command: str) -> str:
    """Return what a command of a checkout's host without settings prints on a terminal of this width."""
    kept = ("PATH", "HOME", "LANG", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "DOCKER_HOST")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONUNBUFFERED": "1",
    }
    words = shlex.split(command)
    words[0] = str(ROOT / ".venv/bin/trainwright")
    done = subprocess.run(words, cwd=WORK, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def terminal(command: str, output: str) -> str:
    """Return an SVG of a terminal. Raises ValueError if it would show a path of this checkout."""
    if str(ROOT) in output:
        raise ValueError(f"{command}: the output names {ROOT}")
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=COLUMNS, force_terminal=True, color_system="truecolor")
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        console.print(Text.from_ansi(output.rstrip()))
        svg = console.export_svg(title="", theme=THEME, unique_id="terminal")
    svg = OWN_FONTS.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    return "\n".join(row.rstrip() for row in svg.splitlines()) + "\n"


def matrix() -> None:
    """Write matrix.png: the page with the panel of the first proved CUDA image."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        sys.exit(f"matrix.png requires one of: {', '.join(BROWSERS)}")
    target = f"{(ROOT / 'docs/matrix.html').as_uri()}#pytorch-2.15-cu132-py313-sagemaker-single-node"
    options = [
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        "--window-size=1280,780",
        "--virtual-time-budget=2000",
    ]
    picture = WORK / "matrix.png"
    subprocess.run([browser, *options, f"--screenshot={picture}", target], check=True, stderr=subprocess.DEVNULL)
    shutil.move(picture, PICTURES / "matrix.png")


def main() -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / LOG, WORK / "nccl-tests.log")
    shutil.rmtree(WORK / "logs", ignore_errors=True)
    with tarfile.open(ROOT / JOBS) as archive:
        members = [one for one in archive if one.name.startswith(f"./{JOB}/") and not one.name.endswith("label.json")]
        archive.extractall(WORK, members=members, filter="data")
    (WORK / JOB).rename(WORK / "logs")
    for name in sys.argv[1:] or [*TERMINALS, "matrix"]:
        if name == "matrix":
            matrix()
        elif name in TERMINALS:
            (PICTURES / f"{name}.svg").write_text(terminal(TERMINALS[name], run(TERMINALS[name])))
        else:
            sys.exit(f"no picture is called {name!r}: {', '.join([*TERMINALS, 'matrix'])}")
        print(f"docs/pictures/{name}.{'png' if name == 'matrix' else 'svg'}")


if __name__ == "__main__":
    main()
