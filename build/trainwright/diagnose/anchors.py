"""Take from a regular expression the literals that its matches contain, so that one pass finds candidate lines."""

SHORTEST = 4  # characters: a shorter literal stands in too many lines
ANY = "dDsSwWbBAZ"  # escapes that stand for no character of their own


def literals(expression: str) -> list[str]:
    """Return literals of which each match contains at least one. Raises ValueError if some match needs none."""
    found = list[str]()
    for alternative in split(expression):
        runs, groups = parts(alternative)
        choices = [[run] for run in runs if len(run) >= SHORTEST]
        choices += [inner for group in groups if (inner := _of_group(group))]
        if not choices:
            raise ValueError(f"{alternative!r} has no literal of at least {SHORTEST} characters")
        found += max(choices, key=lambda choice: min(map(len, choice)))  # what is long stands in few lines
    return list(dict.fromkeys(found))


def _of_group(group: str) -> list[str]:
    try:
        return literals(group)
    except ValueError:
        return []


def split(expression: str) -> list[str]:
    """Split an expression at the bars that stand in no group."""
    found, depth, start, at = list[str](), 0, 0, 0
    while at < len(expression):
        mark = expression[at]
        if mark == "[":
            at = _after_class(expression, at)
            continue
        if mark == "|" and depth == 0:
            found.append(expression[start:at])
            start = at + 1
        depth += (mark == "(") - (mark == ")")
        at += 2 if mark == "\\" else 1
    return [*found, expression[start:]]


def parts(alternative: str) -> tuple[list[str], list[str]]:
    """Return the literal runs that each match contains, and the groups that each match goes through."""
    if alternative.startswith("(?") and alternative[2:3].isalpha() and alternative[2] != "P":
        raise ValueError(f"{alternative!r} sets a flag: write both cases, as in [Ee]rror")
    runs, groups, run, at = list[str](), list[str](), "", 0

    def ended() -> str:
        runs.append(run)
        return ""

    while at < len(alternative):
        mark, one = alternative[at], ""
        if mark == "\\":
            one, at = alternative[at + 1], at + 2
            one = "" if one in ANY or one.isdigit() else one
        elif mark == "[":
            at = _after_class(alternative, at)
        elif mark == "(":
            end = _after_group(alternative, at)
            if not _may_be_absent(alternative, end) and (inner := _content(alternative[at + 1 : end - 1])):
                groups.append(inner)
            at = end
        else:
            one, at = "" if mark in ".^$" else mark, at + 1
        repeated = at < len(alternative) and alternative[at] in "?*+{"
        if repeated:
            one = one if alternative[at] == "+" else ""
            at = alternative.index("}", at) + 1 if alternative[at] == "{" else at + 1
            at += at < len(alternative) and alternative[at] == "?"
        run = run + one if one else ended()
        run = ended() if repeated else run
    ended()
    return runs, groups


def _content(group: str) -> str:
    """Return the expression in a group; "" for what a match does not consist of, such as a lookahead."""
    if group.startswith("?:"):
        return group[2:]
    if group.startswith("?P<"):
        return group.partition(">")[2]
    return "" if group.startswith("?") else group


def _may_be_absent(text: str, at: int) -> bool:
    return text[at : at + 1] in ("?", "*") or text.startswith(("{0", "{,"), at)


def _after_class(text: str, at: int) -> int:
    at += 2 + (text[at + 1] == "^")  # a bracket that comes first stands for itself
    while text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _after_group(text: str, at: int) -> int:
    depth = 0
    while True:
        mark = text[at]
        if mark == "[":
            at = _after_class(text, at)
            continue
        depth += (mark == "(") - (mark == ")")
        at += 2 if mark == "\\" else 1
        if depth == 0:
            return at
