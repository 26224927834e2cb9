"""The engine keeps images in the containerd store: only that one knows the digest an image will have."""

from trainwright import engine
from trainwright.doctor.context import Context, Finding
from trainwright.errors import EnvironmentProblem


def check(context: Context) -> Finding:
    if isinstance(context.engine, EnvironmentProblem):
        return Finding(check="image store", state="unknown", found=context.engine.what, fix=context.engine.fix)
    kept = context.engine["image_store"]
    if kept == "containerd":
        return Finding(check="image store", state="ok", found=f"containerd, in {context.engine['root']}")
    return Finding(
        check="image store",
        state="failed",
        found=f"{kept}: it keeps no compressed layers, so no image could be probed or pushed by digest",
        fix=engine.CONTAINERD_FIX,
    )
