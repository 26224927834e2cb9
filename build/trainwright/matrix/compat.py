"""Judge which versions go together: the rows of compat.toml, applied to the versions that an image carries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from pydantic import Field, field_validator, model_validator

from trainwright.core import versions
from trainwright.core.errors import ConfigError, did_you_mean
from trainwright.core.toml import Model, line_of, load, read

FILE = "dockerfiles/compat.toml"
Facts = Mapping[str, str]  # component, or one of DERIVED, to its exact version
Said = Annotated[str, Field(min_length=1)]

# Facts that no component carries. `nvcc` is CUDA where something is compiled with it; `plugin-libfabric` is the
# libfabric that aws-ofi-nccl was compiled against, `plugin-installer` the installer that brings it; `sm` and
# `highest-sm` are those of the image's GPUs; `driver` is the fleet's oldest; `arm64` is "1" on that architecture,
# NCCL_* are "1" where a test sets them.
DISTRIBUTIONS = ("debian", "ubuntu", "amazonlinux")  # read from the name of the base: debian-13
DERIVED = (
    *("base", "compiler", "cuda", "driver", "glibc", "torch", "sm", "highest-sm", "plugin-libfabric", "nvcc"),
    *("plugin-installer", "arm64", "NCCL_ALGO", "NCCL_PROTO", *DISTRIBUTIONS),
)


def _range(text: str) -> str:
    if text:
        versions.specifiers(text)
    return text


def _normalized(name: str) -> str:
    if name != canonicalize_name(name):
        raise ValueError(f"{name!r} is not the normalized name of a Python package: {canonicalize_name(name)}")
    return name


class Rule(Model):
    """One row; it does not apply if a fact that it names is missing, `when` is not met, or `unless` is."""

    kind: Literal["requires", "ban", "overlap", "not-older", "undocumented"]
    a: str
    a_range: Said  # the versions of `a` that the rule is about
    b: str = ""
    b_range: str = ""  # requires: the range that `b` must be in
    when: dict[str, Said] = Field(default={})  # components, and the range that each must be in for the rule to apply
    unless: list[str] = Field(default=[])  # components that lift the rule
    severity: Literal["refuse", "warn"]
    rule: Said  # one sentence
    evidence: Said  # repository, file, changelog, measurement
    checked_on: date

    _ranges = field_validator("a_range", "b_range")(_range)

    @field_validator("when")
    @classmethod
    def _conditions(cls, when: dict[str, str]) -> dict[str, str]:
        for text in when.values():
            versions.specifiers(text)
        return when

    @model_validator(mode="after")
    def _sides(self) -> "Rule":
        if bool(self.b) == (self.kind == "ban") or bool(self.b_range) != (self.kind == "requires"):
            raise ValueError(
                "a ban takes no `b`, every other rule requires one; `b_range` only applies to kind `requires`"
            )
        if self.kind == "undocumented" and self.severity == "refuse":
            raise ValueError("a rule of kind `undocumented` warns: severity `refuse` is not for it")
        return self


class Interface(Model):
    """The NCCL net API versions, first to last, that a component supports in a range of its own versions."""

    component: str
    range: Said
    first: int
    last: int
    evidence: Said
    checked_on: date

    _ranges = field_validator("range")(_range)


class Winner(Model):
    """Two Python packages that claim the same paths with different bytes, and the one whose files an image gets."""

    winner: Said
    loser: Said
    rule: Said  # why its files are the right ones
    evidence: Said
    checked_on: date

    _names = field_validator("winner", "loser")(_normalized)

    @model_validator(mode="after")
    def _two(self) -> "Winner":
        if self.winner == self.loser:
            raise ValueError("`winner` and `loser` must be two packages")
        return self


class Compat(Model):
    """The whole of compat.toml."""

    rules: list[Rule]
    interfaces: list[Interface] = Field(default=[])
    winners: list[Winner] = Field(default=[])


class Side(Model):
    name: str
    version: str
    range: str  # the range that the rule states


class Verdict(Model):
    """One rule that applies, and whether it holds; a broken rule refuses an image or warns."""

    row: int  # of compat.toml, from 1
    state: Literal["holds", "broken", "not established"]
    severity: Literal["refuse", "warn"]
    a: Side
    b: Side | None
    rule: str
    evidence: str
    checked_on: date


def load_rules(root: Path, components: Iterable[str]) -> Compat:
    """Read compat.toml. Raises ConfigError for an invalid range and for a name that no component or fact has."""
    path = root / FILE
    compat, known = load(path, Compat), {*components, *DERIVED}
    named = [("rules", n, key, getattr(rule, key)) for n, rule in enumerate(compat.rules) for key in ("a", "b")]
    named += [("rules", n, name, name) for n, rule in enumerate(compat.rules) for name in (*rule.when, *rule.unless)]
    named += [("interfaces", n, "component", row.component) for n, row in enumerate(compat.interfaces)]
    for table, n, key, name in named:
        if name and name not in known:
            line = line_of(read(path), (table, n, key))
            raise ConfigError(
                f"row {n + 1} of [[{table}]] names {name!r}, which is not a component",
                where=f"{FILE}:{line}",
                why=did_you_mean(name, known),
                fix=f"$EDITOR +{line} {FILE}",
            )
    return compat


def place(root: Path, verdict: Verdict) -> str:
    """Return file:line of the rule of a verdict."""
    return f"{FILE}:{line_of(read(root / FILE), ('rules', verdict.row - 1))}"


def complete(facts: Facts) -> Facts:
    """Add the release of the distribution, which the name of the base contains: debian-13, debian-13-efa."""
    named = re.match(rf"({'|'.join(DISTRIBUTIONS)})-(\d[\d.]*)", facts.get("base", ""))
    return {**facts, **({named[1]: named[2]} if named else {})}


def judge(compat: Compat, facts: Facts, all_: bool = True) -> Iterator[Verdict]:
    """Judge every rule that applies to these facts. Raises ConfigError if a fact is not a valid version.

    Without `all_`, the rules that hold are left out.
    """
    facts = complete(facts)
    for row, rule in enumerate(compat.rules, start=1):
        try:
            if verdict := _verdict(compat, rule, row, facts, all_):
                yield verdict
        except ValueError as error:
            raise ConfigError(f"row {row} of {FILE} cannot be judged", where=FILE, why=str(error)) from None


def _verdict(compat: Compat, rule: Rule, row: int, facts: Facts, all_: bool) -> Verdict | None:
    sides = [name for name in (rule.a, rule.b) if name]
    if any(name not in facts or not versions.within(facts[name], where) for name, where in rule.when.items()):
        return None
    if any(name not in facts for name in sides) or any(name in facts for name in rule.unless):
        return None
    a, b = facts[rule.a], facts.get(rule.b, "")
    touched, state, ranges = versions.within(a, rule.a_range), "holds", [rule.a_range, rule.b_range]
    if rule.kind == "ban":
        state = "broken" if touched else "holds"
    elif not touched:
        return None
    elif rule.kind == "undocumented":
        state, ranges[1] = "not established", "not documented"
    elif rule.kind == "requires":
        state = "holds" if versions.within(b, rule.b_range) else "broken"
    elif rule.kind == "not-older":
        state, ranges[1] = "broken" if versions.older(b, a) else "holds", f">={a}"
    else:
        spoken = [_spoken(compat, name, facts[name]) for name in sides]
        ranges = [f"net v{each.first} to v{each.last}" if each else "net versions unknown" for each in spoken]
        one, other = spoken
        if one is None or other is None:
            state = "not established"
        elif max(one.first, other.first) > min(one.last, other.last):
            state = "broken"
    if state == "holds" and not all_:
        return None
    return Verdict.model_validate(
        {
            "row": row,
            "state": state,
            "a": {"name": rule.a, "version": a, "range": ranges[0]},
            "b": {"name": rule.b, "version": b, "range": ranges[1]} if rule.b else None,
            **rule.model_dump(include={"rule", "evidence", "checked_on"}),
            "severity": "warn" if state == "not established" else rule.severity,
        }
    )


def _spoken(compat: Compat, name: str, version: str) -> Interface | None:
    rows = (row for row in compat.interfaces if row.component == name)
    return next((row for row in rows if versions.within(version, row.range)), None)


def violations(compat: Compat, facts: Facts) -> list[Verdict]:
    """List the rules that are broken or could not be established; refusals first."""
    return sorted(judge(compat, facts, all_=False), key=lambda v: v.severity != "refuse")


def floor(compat: Compat, a: str, version: str, b: str) -> str:
    """Return the oldest `b` that a version of `a` admits, by its rules' `>=`, or "" if no rule states it."""
    held = [
        spec.version
        for row in compat.rules
        if row.kind == "requires" and (row.a, row.b) == (a, b) and version and versions.within(version, row.a_range)
        for spec in versions.specifiers(row.b_range)
        if spec.operator == ">="
    ]
    return versions.in_order(held)[-1] if held else ""
