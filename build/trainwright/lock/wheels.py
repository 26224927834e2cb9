"""Assign wheels to the folders of out/<id>/wheels/: one folder is one layer, or the input of one stage."""

from collections.abc import Collection, Iterable

from trainwright.matrix.model import Base, LayerLimits, PythonFile

LIBRARIES = "libraries"  # all small wheels, above the large layers, because they change most often
COMPILE = "compile"  # wheels that stages compile with
SDISTS = "sdist-compile"  # source distributions that separate stages compile against all of the above


def marker_environment(python: str, base: Base) -> dict[str, str]:
    """Return the image's values for the markers of requirements, without an extra."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": base.machine,
        "extra": "",
    }


def is_wheel(entry: PythonFile) -> bool:
    return entry.file.endswith(".whl")


def parts(entries: Iterable[PythonFile], own: set[str], limits: LayerLimits) -> list[list[PythonFile]]:
    """Group the large wheels into layers of at most `limits.most` bytes; those pinned by name come last.

    A larger wheel is a part by itself; its installation moves its largest file into one more layer.

    First-fit decreasing: few layers, and the same ones for the same wheels.
    """
    large = sorted(
        (entry for entry in entries if is_wheel(entry) and entry.size >= limits.alone),
        key=lambda entry: (entry.name in own, -entry.size, entry.name),
    )
    made: list[list[PythonFile]] = []
    for entry in large:
        for part in made:
            same = (part[0].name in own) == (entry.name in own)
            if same and sum(other.size for other in part) + entry.size <= limits.most:
                part.append(entry)
                break
        else:
            made.append([entry])
    return [sorted(part, key=lambda entry: entry.name) for part in made]


def folders(
    entries: Iterable[PythonFile],
    own: set[str],
    replaced: set[str],
    limits: LayerLimits,
    devel: bool,
    compiles: bool,
    compiled: Collection[str] = (),
    losers: Collection[str] = (),
) -> dict[str, list[PythonFile]]:
    """Return each folder's files, sorted by name, in the order in which an image installs the folders.

    `own` are the packages that pins name, `replaced` those that an image replaces with its own compiled ones;
    `compiles` says whether a stage compiles at all, because compilers are fetched only then. `compiled` are the
    packages that a separate stage builds from their source distribution once all others are installed. `losers` come
    first, in a layer of their own, because what a later step installs to the same path replaces their files.
    """
    found = sorted(entries, key=lambda entry: entry.name)
    framework = [entry for entry in found if entry.group == "framework" and entry.name not in {*replaced, *compiled}]
    early = [entry for entry in framework if entry.name in losers]
    large = [early] * bool(early) + parts([entry for entry in framework if entry not in early], own, limits)
    placed = {entry.name for part in large for entry in part}
    made = {f"framework-{number}": part for number, part in enumerate(large, 1)}
    made[LIBRARIES] = [entry for entry in framework if entry.name not in placed]
    for group in ("toolkit", "tools", "sdist-build", *(["devel"] if devel else [])):
        made[group] = [entry for entry in found if entry.group == group]
    if compiles:
        made[COMPILE] = [entry for entry in found if entry.compile]
    if compiled:
        made[SDISTS] = [entry for entry in found if entry.name in compiled]
    return made
