"""Loads a library by the name given, as dlopen finds it, and runs the statements that follow with it as `lib`.

Prints JSON: {"path": where it really lies, "said": whatever the statements put into `said`}.
"""

import ctypes
import json
import sys
from pathlib import Path

LINK_MAP = 2  # dlinfo's RTLD_DI_LINKMAP; in its struct the name follows an address
lib = ctypes.CDLL(sys.argv[1])
scope = {"lib": lib, "ctypes": ctypes, "said": None}
if len(sys.argv) > 2:
    exec(sys.argv[2], scope)
link_map = ctypes.c_void_p()
ctypes.CDLL(None).dlinfo(ctypes.c_void_p(lib._handle), LINK_MAP, ctypes.byref(link_map))
name = ctypes.cast(link_map.value + ctypes.sizeof(ctypes.c_void_p), ctypes.POINTER(ctypes.c_char_p))[0]
print(json.dumps({"path": str(Path(name.decode()).resolve()), "said": scope["said"]}))
