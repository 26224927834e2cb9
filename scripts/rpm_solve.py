"""Runs in a container of an image with dnf 4: prints as JSON the packages of a system that has the wanted ones.

argv[1] is a JSON file: `packages` (what to install: a name, or name-[epoch:]version-release.arch), `repositories`
(id to the address of a mirror, "" for the image's own), `redirects` (address prefix to mirror), `ca` (a PEM file, or
""), `cache` (an empty folder), `only_keys` (print the files of the repositories' keys instead). Repositories, their
addresses and their keys are those that the image itself is configured with.
"""

import json
import os
import sys

GONE = ("404", "(37)", "(78)", "410")  # of curl and HTTP: there is no such file


class Refused(Exception):
    pass


def redirected(address, redirects):
    """Return an address with its longest known prefix replaced, as TRAINWRIGHT_MIRRORS says."""
    fit = [one for one in redirects if address == one or address.startswith(one + "/")]
    if not fit:
        return address
    best = max(fit, key=len)
    return redirects[best] + address[len(best) :]


def configured(asked, signed, folder):
    """Return dnf with the wanted repositories; the index of those in `signed` must have a valid signature."""
    import dnf

    base = dnf.Base()
    base.conf.read()
    base.conf.cachedir = os.path.join(asked["cache"], folder)
    base.conf.install_weak_deps = False
    base.conf.best = True
    base.conf.gpgcheck = True
    base.conf.substitutions.update_from_etc("/")
    base.read_all_repos()
    for repo in base.repos.all():
        if repo.id not in asked["repositories"]:
            repo.disable()
            continue
        repo.enable()
        if asked["ca"]:
            repo.sslcacert = asked["ca"]
        mirror = asked["repositories"][repo.id]
        if mirror:
            repo.baseurl, repo.mirrorlist, repo.metalink = [mirror], None, None
        else:
            repo.baseurl = [redirected(one, asked["redirects"]) for one in repo.baseurl]
            repo.mirrorlist = repo.mirrorlist and redirected(repo.mirrorlist, asked["redirects"])
            repo.metalink = repo.metalink and redirected(repo.metalink, asked["redirects"])
        repo.skip_if_unavailable = False
        repo.repo_gpgcheck = repo.repo_gpgcheck or repo.id in signed
    unknown = sorted(set(asked["repositories"]) - {repo.id for repo in base.repos.iter_enabled()})
    if unknown:
        raise RuntimeError("the image has no repository called %s in /etc/yum.repos.d" % ", ".join(unknown))
    for repo in base.repos.iter_enabled():
        keys(repo)
    return base


def has_signature(repo):
    """Return whether a repository offers a signature of its index."""
    import dnf.util

    address = repo.remote_location("repodata/repomd.xml.asc")
    try:
        dnf.util._urlopen(address, repo=repo).close()
    except OSError as error:
        if any(sign in str(error) for sign in GONE):
            return False
        raise
    return True


def keys(repo):
    """Return the files of a repository's keys. Only those of the image count, because its digest vouches for them."""
    foreign = [address for address in repo.gpgkey if not address.startswith("file:///")]
    if foreign or not repo.gpgkey:
        raise RuntimeError(
            "the repository %s has its key %s; only a key in the image can be trusted"
            % (repo.id, "at %s" % foreign[0] if foreign else "nowhere: gpgkey is not set")
        )
    return [address[len("file://") :] for address in repo.gpgkey]


def described(package):
    kind, checksum = package.returnIdSum()
    if kind != "sha256":
        raise RuntimeError("the index of %s lists %s of its packages, not sha256" % (package.reponame, kind))
    return {
        **named(package),
        "repository": package.reponame,
        "address": package.remote_location(),
        "location": package.location,
        "size": package.downloadsize,
        "sha256": checksum,
        "licence": package.license or "",
    }


def named(package):
    return {"name": package.name, "version": package.evr, "architecture": package.arch}


def solved(base, wanted):
    """Return the packages of the system with the wanted ones installed: those that stay, and those to fetch."""
    import dnf.exceptions
    import dnf.subject

    for one in wanted:
        found = dnf.subject.Subject(one).get_best_query(base.sack, with_provides=False, with_filenames=False)
        if not found:
            provided = base.sack.query().filter(provides=one)
            also = ": it is provided by %s" % ", ".join(sorted({p.name for p in provided})) if provided else ""
            raise Refused("no package is called %s%s" % (one, also))
        try:
            base.install(one)
        except dnf.exceptions.MarkingError as error:
            raise Refused(str(error)) from None
    try:
        base.resolve()
    except dnf.exceptions.DepsolveError as error:
        raise Refused(str(error)) from None
    gone = {str(package) for package in base.transaction.remove_set}
    stay = [package for package in base.sack.query().installed() if str(package) not in gone]
    return stay, sorted(base.transaction.install_set)


def everything(asked):
    base = configured(asked, (), "first")
    if asked["only_keys"]:
        return sorted({path for repo in base.repos.iter_enabled() for path in keys(repo)})
    base.fill_sack(load_system_repo=False)
    signed = {repo.id for repo in base.repos.iter_enabled() if repo.repo_gpgcheck or has_signature(repo)}
    base = configured(asked, signed, "second")
    base.fill_sack(load_system_repo=True)
    stay, fetch = solved(base, asked["packages"])
    return {
        "date": max(repo._repo.getMaxTimestamp() for repo in base.repos.iter_enabled()),
        "signed": sorted(signed),
        "held": [named(package) for package in stay],
        "fetch": [described(package) for package in fetch],
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        QUESTION = json.load(file)
    try:
        print(json.dumps(everything(QUESTION)))
    except Refused as problem:
        print(json.dumps({"refused": str(problem)}))
    except ImportError as problem:
        sys.exit("dnf of this image has no Python interface of dnf 4: %s" % problem)
    except Exception as problem:  # of libdnf and librepo: their messages name the address
        sys.exit(str(problem))
