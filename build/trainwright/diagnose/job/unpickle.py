"""Read a pickle of plain data. Nothing is imported or called: each opcode that could do so is refused."""

import pickletools
from typing import Any

LARGEST = 1 << 26  # bytes
MOST_VALUES = 4_000_000
DEEPEST = 32
CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"}
EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MARK = object()


class Refused(ValueError):
    """A pickle that is damaged, too large, or more than plain data."""


def unpickled(data: bytes) -> object:
    """Return the value of a pickle that consists of dicts, lists, tuples, texts and numbers. Raises Refused."""
    if len(data) > LARGEST:
        raise Refused(f"it has {len(data)} bytes; the limit is {LARGEST}")
    stack, memo, values = list[Any](), dict[int, Any](), 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            values += 1
            if values > MOST_VALUES:
                raise Refused(f"it has more than {MOST_VALUES} values")
            if opcode.name == "STOP":
                (value,) = stack
                _measure(value)
                return value
            _step(opcode.name, argument, stack, memo)
    except Refused:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        raise Refused("it is cut or damaged") from None
    raise Refused("it is cut or damaged")


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in ("PROTO", "FRAME"):
        return
    if name in CONSTANTS:
        stack.append(CONSTANTS[name])
    elif name in NUMBERS or name in TEXTS:
        stack.append(argument)
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name == "MARK":
        stack.append(MARK)
    elif name in TUPLES:
        stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
    elif name == "TUPLE":
        stack.append(tuple(_to_mark(stack)))
    elif name == "APPEND":
        value = stack.pop()
        _list(stack).append(value)
    elif name == "APPENDS":
        rest = _to_mark(stack)
        _list(stack).extend(rest)
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _dict(stack)[key] = value
    elif name == "SETITEMS":
        rest = _to_mark(stack)
        _dict(stack).update(zip(rest[::2], rest[1::2], strict=True))
    elif name in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    else:
        raise Refused(f"it has the opcode {name}, which plain data does not need")


def _to_mark(stack: list[Any]) -> list[Any]:
    """Take what was put on the stack since the last mark."""
    rest = list[Any]()
    while (value := stack.pop()) is not MARK:
        rest.append(value)
    return rest[::-1]


def _list(stack: list[Any]) -> list[Any]:
    if not isinstance(stack[-1], list):
        raise Refused("it appends to a value that is not a list")
    return stack[-1]


def _dict(stack: list[Any]) -> dict[Any, Any]:
    if not isinstance(stack[-1], dict):
        raise Refused("it sets an item of a value that is not a dict")
    return stack[-1]


def _measure(value: object) -> None:
    """Refuse a value that is nested too deeply, contains itself, or is large because it repeats its parts."""
    level, count, depth = [value], 0, 0
    while level:
        count, depth = count + len(level), depth + 1
        if depth > DEEPEST:
            raise Refused(f"it is nested more than {DEEPEST} levels deep")
        if count > MOST_VALUES:
            raise Refused(f"it has more than {MOST_VALUES} values")
        below = list[object]()
        for one in level:
            if isinstance(one, dict):
                below += [*one.keys(), *one.values()]
            elif isinstance(one, (list, tuple)):
                below += one
            if len(below) > MOST_VALUES:
                raise Refused(f"it has more than {MOST_VALUES} values")
        level = below
