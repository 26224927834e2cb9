"""Two other ways to look for the guilty host, on the same clusters: pairs with a fixed threshold, and bisection."""

import math

from find.world import SPEED, World

from trainwright.gate.find.model import NOBODY, Culprit, Test

THRESHOLD = math.log(0.85)  # of the speed that the hardware should have


def is_slow(world: World, hosts: tuple[int, ...], number: int) -> bool:
    speed = world.one(Test(hosts), number).speed
    return speed is None or speed < SPEED - 0.03 * math.log2(len(hosts)) + THRESHOLD


def pairwise(world: World) -> tuple[Culprit, int]:
    """Measure random pairs, then each host of a slow pair again with one that passed."""
    order = list(range(world.cluster.size))
    world.random.shuffle(order)
    passed, suspects = list[int](), list[int]()
    while len(order) > 1:
        pair = order.pop(), order.pop()
        (suspects if is_slow(world, pair, 1) else passed).extend(pair)
    suspects += order
    if not suspects or not passed:
        return (("hosts", *sorted(suspects)) if suspects else NOBODY), 1
    blamed = sorted(
        host for place, host in enumerate(suspects) if is_slow(world, (host, passed[place % len(passed)]), 2)
    )
    return (("hosts", *blamed) if blamed else NOBODY), 2


def bisection(world: World) -> tuple[Culprit, int]:
    """Measure all hosts, then halves of what is slow, down to pairs; a host of a slow pair with one that passed."""
    passed: list[int] = []
    slow, rounds = [tuple(range(world.cluster.size))], 0
    blamed: list[int] = []
    while slow:
        rounds += 1
        found = [hosts for hosts in slow if is_slow(world, hosts, rounds)]
        passed += [host for hosts in slow if hosts not in found for host in hosts]
        slow = []
        for hosts in found:
            if len(hosts) > 3:
                middle = len(hosts) // 2
                slow += [hosts[:middle], hosts[middle:]]
            elif passed:
                blamed += [host for host in hosts if is_slow(world, (host, passed[0]), rounds + 1)]
            else:
                blamed += hosts
    return (("hosts", *sorted(blamed)) if blamed else NOBODY), rounds + bool(blamed)
