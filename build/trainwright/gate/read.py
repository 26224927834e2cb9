"""Read logs for the judge: files of any size, also with gzip, standard input, and the output of -J."""

import json
from collections.abc import Iterator
from pathlib import Path

from trainwright.build.state import read_image
from trainwright.core.errors import ConfigError, NotRunError, TestError
from trainwright.core.progress import few
from trainwright.diagnose import causes as signatures
from trainwright.diagnose.log_lines import STANDARD_INPUT, cut, opened
from trainwright.diagnose.nccl_debug import Seen
from trainwright.gate import floors, judge, nccl_tests, passed, spec
from trainwright.gate.baseline import Baseline
from trainwright.gate.case import Case, Declared, Log
from trainwright.gate.judge import Verdict
from trainwright.matrix import instances
from trainwright.matrix.instances import Instance
from trainwright.matrix.matrix import Recipe, load_intent


def read(file: str, causes: list[signatures.Cause]) -> Log:
    """Return everything that the judge needs of a log. Raises ConfigError."""
    with opened(file) as stream:
        rest = cut(stream)
        first = next(rest, "")
        if first.lstrip().startswith("{"):
            return _of_json(file, first + "".join(rest))
        return judge.read(_chain(first, rest), causes)


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _of_json(file: str, text: str) -> Log:
    try:
        table = nccl_tests.of_json(data := json.loads(text))
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):  # written at the end of a run: a crash leaves half of it
            return Log([], None, Seen(nccl=True), [], text.count("\n"))
        raise ConfigError("the JSON file is not a log of nccl-tests", where=file, why=str(error)) from None
    except RecursionError:
        raise ConfigError("the JSON file is nested too deeply", where=file, fix=f"head -c 1000 {file}") from None
    seen, said = Seen(), data.get("errors")
    if isinstance(said, list):
        said = [one for one in said if one]  # nccl-tests writes [""] where there was none
    if said:
        seen.errors = (1, str(said))
    return Log([table], None, seen, [], text.count("\n"))


def pins(texts: list[str]) -> dict[str, str]:
    """Parse NAME=VERSION,... or an image.json with the versions that were proved. Raises ConfigError."""
    return {name: version for text in texts for name, version in _pins(text).items()}


def _pins(text: str) -> dict[str, str]:
    if "=" in text:
        parts = [part.partition("=") for part in text.split(",")]
        return {name.strip(): version.strip() for name, _, version in parts}
    path = Path(text)
    image = read_image(path.parent) if path.name == "image.json" and path.exists() else None
    if image is None:
        fix = "--pins nccl=2.30.7, or --pins out/<id>/image.json"
        raise ConfigError(f"--pins {text} is neither NAME=VERSION nor an image.json", fix=fix)
    return dict(image.versions)


def verdicts(root: Path, files: list[str], declared: Declared, baseline: Baseline | None = None) -> list[Verdict]:
    """Return one verdict for each log. Raises ConfigError for an unknown instance or a missing log."""
    return [verdict for verdict, _ in examined(root, files, declared, baseline)]


def examined(
    root: Path, files: list[str], declared: Declared, baseline: Baseline | None = None
) -> list[tuple[Verdict, Case]]:
    """Return the verdict on each log, with its case. Raises ConfigError."""
    declared = declared.model_copy(update={"instance": declared.instance.removeprefix("ml.")})  # SageMaker's prefix
    table, rows, known = floors.load_floors(root), instances.load_instances(root), signatures.load_causes(root)
    instances.refuse(root, declared.instance)
    if declared.instance and declared.instance not in rows:
        raise instances.unknown(declared.instance, rows, "--instance")
    if declared.collective and declared.collective not in nccl_tests.NAMES:
        names = ", ".join(nccl_tests.NAMES)
        raise ConfigError(f"unknown collective {declared.collective!r}", where="--collective", why=f"valid: {names}")
    _refuse_nics(declared, rows)
    instance, found = rows.get(declared.instance), []
    for file in files:
        case = Case(read(file, known), declared, instance, table, baseline)
        found.append((judge.judge(file, case, known), case))
    return found


def _refuse_nics(declared: Declared, rows: dict[str, Instance]) -> None:
    """Validate --nics. Raises ConfigError if there is nothing to compare a number of interfaces with."""
    why, fix = "", "--instance TYPE --nodes NUMBER"
    if not declared.nics:
        return
    if not declared.instance:
        why = "the expected number comes from the instance type"
    elif declared.nodes == 1:
        why, fix = "one node does not use EFA", "leave --nics out"
    elif declared.nics > (has := rows[declared.instance].most_efa):
        why, fix = f"{declared.instance} has {has}", "--nics is for fewer interfaces than the instance type has"
    if why:
        raise ConfigError(f"--nics {declared.nics} cannot be checked", where="--nics", why=why, fix=fix)


def refuse(found: list[Verdict]) -> None:
    """Raise TestError for a failed log, NotRunError for an incomplete or ungraded one, each log with its cause."""
    for words, error in ((("fail",), TestError), (("incomplete", "ungraded"), NotRunError)):
        bad = [one for one in found if one.verdict in words]
        if not bad:
            continue
        fixes = {one.fix for one in bad}
        raise error(
            f"{len(bad)} of {len(found)} logs: {', '.join(sorted({one.verdict for one in bad}))}"
            + (f" ({bad[0].cause})" if len(bad) == 1 and bad[0].cause else ""),
            where=bad[0].file if len(bad) == 1 else "",
            why="\n".join(_because(bad[0]) if len(bad) == 1 else (_in_short(one) for one in bad)),
            fix=fixes.pop() if len(fixes) == 1 else "see the fix of each log above",
        )


def _because(one: Verdict) -> list[str]:
    states = ("fail",) if one.verdict == "fail" else ("not established",)
    return [f"{check.name}: {check.evidence}" for check in one.checks if check.state in states]


def _in_short(one: Verdict) -> str:
    cause = f" ({one.cause})" if one.cause else ""
    return f"{one.file}: {one.verdict}{cause}: {few(_because(one), 1)}"


def recordable(root: Path, identity: str, files: list[str]) -> Recipe:
    """Return the image to record. Raises ConfigError for an unknown image or for standard input."""
    if STANDARD_INPUT in files:
        raise ConfigError(
            "--record requires a file, not standard input", where="--record", fix="trainwright judge FILE --record ..."
        )
    return load_intent(root).recipe(identity)


def record(recipe: Recipe, found: list[Verdict], declared: Declared) -> None:
    """Record that an image passed. Raises NotRunError."""
    passed.record(recipe, spec.load_settings(recipe.root).run.collectives, found, declared)
