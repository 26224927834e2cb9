"""Resolve where images are published: one plain registry, or repositories of Amazon ECR in one or several regions."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trainwright.core import host_settings
from trainwright.core.errors import ConfigError, RegistryError, did_you_mean
from trainwright.registry import auth, aws, client, ecr
from trainwright.registry.retry import side_by_side
from trainwright.registry.settings import Place

Held = Mapping[Place, str]  # digest behind an image's tag in each place, "" if it has none

# <account>.dkr.ecr.<region>.amazonaws.com, also of other partitions or with FIPS; a repository prefix may follow.
ECR = re.compile(
    r"(?P<address>(?P<account>\d{12})\.dkr\.ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?)"
    r"(/(?P<prefix>.+))?"
)
OWN = re.compile(r"ecr(/(?P<prefix>.+))?")

_signed_in: set[str] = set()
# Credentials for ECR addresses that are only read from, to verify or to pull, so that no `docker login` is needed.
auth.recognise(ECR, lambda named: ecr.credentials(named["region"], named["account"]))


class Host(NamedTuple):
    """A registry and a prefix, without the name of a repository."""

    address: str  # host[:port]
    prefix: str = ""  # of every repository's name
    region: str = ""
    account: str = ""

    def place(self, path: str) -> Place:
        path = f"{self.prefix}/{path}" if self.prefix else path
        return Place(host=self.address, path=path, region=self.region, account=self.account)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}" if self.prefix else self.address


def hosts(root: Path, given: str, regions: str = "") -> list[Host]:
    """Return the registries to publish to: `given` (REGISTRY), else the loopback registry. `ecr` is one per region.

    Raises ConfigError for a word that is not a host, and for regions if the registry has none or is in another one;
    RegistryError if the loopback registry does not answer, or if an AWS account is configured and no registry is given,
    because publishing to loopback would be a silent fallback. Raises AwsError.
    """
    if named := ECR.fullmatch(given):
        if regions and aws.regions(regions) != [named["region"]]:
            raise _other_regions(regions, f"{given} is only in {named['region']}")
        return [_signed(Host(named["address"], named["prefix"] or "", named["region"], named["account"]))]
    if own := OWN.fullmatch(given):
        return [_signed(host) for host in side_by_side(partial(_own, own["prefix"] or ""), aws.regions(regions))]
    if regions:
        raise _other_regions(
            regions, f"{given} is not an Amazon ECR registry" if given else "no Amazon ECR registry was given"
        )
    refuse_words(given)
    address = given or host_settings.registry_address(root)
    if not given and (account := host_settings.aws_account()):
        raise RegistryError(
            "an AWS account is configured, but REGISTRY is not set",
            why=f"{account} is set",
            fix=f"REGISTRY=ecr for the account's own Amazon ECR, or REGISTRY={address} for the registry on loopback",
        )
    if not given and not client.answers(address):
        raise RegistryError(f"no registry answers at {address}", fix="make registry")
    host, _, prefix = address.partition("/")
    return [Host(host, prefix)]


def _own(prefix: str, region: str) -> Host:
    """Return the account's own registry in a region; its address comes from a call to AWS."""
    return Host(ecr.host(region), prefix, region)


def _other_regions(regions: str, why: str) -> ConfigError:
    return ConfigError(
        f"the registry is not in these regions: {regions}",
        why=why,
        fix="REGISTRY=ecr for the account's own ECR in these regions, or no --region and no TRAINWRIGHT_REGIONS",
    )


def refuse_words(given: str) -> None:
    """Raise ConfigError for a word that is not a host, such as `ECR`: docker would read it as a part of Docker Hub."""
    word = given.partition("/")[0]
    if word and word != "localhost" and not re.search("[.:]", word):
        raise ConfigError(
            f"REGISTRY={given} is not a registry address",
            why=f"{word!r} has neither a dot nor a port; {did_you_mean(word.lower(), ['ecr', 'localhost'])}",
            fix="REGISTRY=ecr[/prefix], or host[:port][/prefix]: registry.example.com/team, localhost:5000",
        )


def _signed(host: Host) -> Host:
    """Make the registry's client request credentials from AWS."""
    if host.address not in _signed_in:
        auth.authenticate(host.address, ecr.credentials(host.region, host.account))
        _signed_in.add(host.address)
    return host


def look_up(wanted: Mapping[str, Iterable[tuple[Place, str]]]) -> dict[str, dict[Place, str]]:
    """Map image ids to digests by place, "" for none. `wanted` maps them to (place, tag); one query per repository."""
    tags = defaultdict[Place, list[str]](list)
    for rows in wanted.values():
        for place, tag in rows:
            tags[place].append(tag)
    asked = side_by_side(lambda place: digests(place, tags[place]), list(tags))
    held = dict(zip(tags, asked, strict=True))
    return {name: {place: held[place][tag] for place, tag in rows} for name, rows in wanted.items()}


def digests(place: Place, tags: Iterable[str]) -> dict[str, str]:
    """Return the digest behind each tag, "" for none. Raises AwsError, RegistryError."""
    if place.region:
        return ecr.lookup(place.region, place.path, tags, place.account)
    return client.resolve_all(place.repository, list(tags))


def home(held: Held) -> tuple[Place, str]:
    """Return the first place that holds the image, and its digest; if none does, the first place and ""."""
    return next(((place, digest) for place, digest in held.items() if digest), (next(iter(held)), ""))


def lacking(held: Held) -> str:
    """Return a note for the user if the places do not all hold the same image, or "" if they do."""
    found = {digest for digest in held.values() if digest}
    if len(found) > 1:
        told = ", ".join(f"{place}: {digest or 'nothing'}" for place, digest in held.items())
        return f"its key names different images: {told}"
    missing = ", ".join(str(place) for place, digest in held.items() if not digest)
    return f"not in {missing} yet" if found and missing else ""
