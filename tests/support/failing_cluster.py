"""A cluster, told step by step (the fixture `story`) that its work fails, and what it says."""

from spillover.core.overflow import events as ev
from spillover.model.request import Outcome


def only(commands, kind):
    return [command for command in commands if isinstance(command, kind)]


def forwards(commands):
    return [(c.ref, c.neighbor) for c in only(commands, ev.Forward)]


def starts(commands):
    return [c.ref for c in only(commands, ev.Start)]


def refusals(commands):
    return [(c.ref, c.origin, c.reason) for c in only(commands, ev.Refuse)]


def reports(commands):
    return [c.report for c in only(commands, ev.Publish)]


def busy(node):
    return node.machine.servers.busy


def not_run(node, ref, now_s=None, *, retry_after_s=None, service_s=0.25):
    """What runs the work says that it surely has not done it."""
    told = ev.NotStarted(
        ref, "upstream", refused=True, service_s=service_s, retry_after_s=retry_after_s
    )
    return node.tell(told, now_s)


def fail(node, ref, now_s=None, service_s=0.25):
    return node.end(ref, now_s, Outcome.FAILED, service_s)


def degrade(node, now_s=0.0, first=900):
    """Own clients' work fails until the cluster is degraded; the commands of the last failure."""
    commands = []
    for ref in range(first, first + 4):
        if node.machine.health.degraded:
            break
        node.arrive(ref, now_s)
        commands = fail(node, ref, now_s)
    assert node.machine.health.degraded
    return commands
