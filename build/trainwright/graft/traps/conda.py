"""Check conda's own libstdc++, which the framework's processes load instead of the distribution's."""

from collections.abc import Iterator

from trainwright.graft.found import Found, older
from trainwright.graft.wanted import Trap, Wanted, handled, refused


def check(found: Found, wanted: Wanted) -> Iterator[Trap]:
    python, inside = found.python, found.inside
    if python is None or inside is None or python.kind != "conda":
        return
    why = "conda's own libstdc++ comes before the distribution's in its processes"
    if wanted.fabric == "none":
        yield handled("conda", python.prefix, why, "this graft adds no compiled library")
    elif python.cxx and older(python.cxx, inside.cxx):
        why += f", and lacks symbols that a plugin compiled here may require (the distribution has {inside.cxx})"
        fix = "update it: conda install 'libstdcxx-ng', or use --fabric none"
        yield refused("conda", f"{python.prefix}: GLIBCXX_{python.cxx}", why, fix)
    else:
        yield handled("conda", python.prefix, why, f"it is as new as the distribution's: {python.cxx or 'none'}")
