"""Write what pods claim by dynamic resource allocation (DRA): EFA interfaces, and the IMEX channel of a GB200 rack.

Facts: resource.k8s.io/v1 (Kubernetes 1.34); the EKS guide device-management-efa; the reference of ComputeDomain of
NVIDIA's DRA driver.
"""

from typing import Any

from trainwright.core.errors import ConfigError
from trainwright.core.toml import Model
from trainwright.schedulers.clusters import Claims, Cluster
from trainwright.schedulers.kubernetes import Object


class Claim(Model):
    """One claim of each pod, and the object that its template comes from."""

    name: str  # efa or imex
    template: str  # the name of the ResourceClaimTemplate, and of the object that makes it
    body: dict[str, Any]  # that object without its metadata


def needed(settings: Claims, cluster: Cluster, on: str, job: str, nodes: int, efa: int, imex: bool) -> list[Claim]:
    """Return the claims of each pod of a job. Raises ConfigError if the cluster, or the operator of `on`, has none.

    One node requires no IMEX channel, because NVLink does not leave it.
    """
    found = [_efa(settings, f"{job}-efa", efa)] if efa and cluster.dra else []
    if imex and nodes > 1:
        if cluster.no_compute_domain:
            raise ConfigError(
                "this instance type requires an IMEX channel for NVLink between hosts, which the cluster cannot give",
                where="--cluster",
                why=cluster.no_compute_domain,
                fix="another --cluster, whose nodes exist before the job; or --nodes 1",
            )
        found.append(_imex(settings, f"{job}-imex", nodes))
    if found and on in settings.refused:
        what = " and ".join(claim.name for claim in found)
        fix = "--on mpijob, or --on pytorchjob"
        raise ConfigError(f"--on {on} cannot claim {what}", where="--on", why=settings.refused[on], fix=fix)
    return found


def _efa(settings: Claims, name: str, count: int) -> Claim:
    exactly = {"deviceClassName": settings.efa_class, "allocationMode": "ExactCount", "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "efa", "exactly": exactly}]}}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "spec": spec}
    return Claim(name="efa", template=name, body=body)


def _imex(settings: Claims, name: str, nodes: int) -> Claim:
    """Return the claim of a channel; the driver makes its template from a ComputeDomain, whose IMEX daemons it runs."""
    spec = {"numNodes": nodes, "channel": {"resourceClaimTemplate": {"name": name}}}
    body = {"apiVersion": settings.compute_domain, "kind": "ComputeDomain", "spec": spec}
    return Claim(name="imex", template=name, body=body)


def documents(claims: list[Claim], metadata: Object) -> list[Object]:
    """Return the objects that a job's file contains before the job; `metadata` is the job's, of another name."""
    named = [(claim.body, {**metadata, "name": claim.template}) for claim in claims]
    return [{"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": own, **body} for body, own in named]


def attach(claims: list[Claim], pod: Object) -> None:
    """Add the claims to a pod of one container."""
    if claims:
        (container,) = pod["containers"]
        container["resources"]["claims"] = [{"name": claim.name} for claim in claims]
        pod["resourceClaims"] = [{"name": claim.name, "resourceClaimTemplateName": claim.template} for claim in claims]


def remarks(settings: Claims, claims: list[Claim], on: str) -> list[str]:
    """Return sentences on what the cluster must have, for the head of the file."""
    found = [f"{claim.name} is claimed (DRA): {settings.requires[claim.name]}" for claim in claims]
    return [*found, *([settings.operators[on]] if claims and on in settings.operators else [])]
