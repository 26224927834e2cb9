"""Make a wheel in memory, which pip and uv install like any other."""

import io
import zipfile


def wheel(name: str, version: str, *requires: str, content: str = "") -> tuple[str, bytes]:
    """Return a wheel's file name and bytes. Its module is `<name>_marker`; with `content` it is the package itself."""
    own = name.replace("-", "_")
    info, packed = f"{own}-{version}.dist-info", io.BytesIO()
    module = f"{own}/__init__.py" if content else f"{own}_marker.py"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{file},,\n" for file in (module, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"))
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(module, content)
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{info}/WHEEL", kind)
        archive.writestr(f"{info}/RECORD", record)
    return f"{own}-{version}-py3-none-any.whl", packed.getvalue()
