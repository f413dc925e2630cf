"""Pools of unlike servers in tests: made of few words, and driven as a machine drives them."""

from spillover.core.tokens.servers import TokenServers
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import JobType, Server, ServerClass, UnlikeServers


def pool_of(servers, classes=None, types=None, **options):
    """Returns a pool of {server: rate}, {class: (servers, tokens)} and {type: classes}; no classes:
    one for each server, with one token."""
    classes = {each: (each, 1) for each in servers} if classes is None else classes
    return UnlikeServers.of(
        tuple(Server(id=each, rate=rate) for each, rate in servers.items()),
        tuple(
            ServerClass(id=each, servers=tuple(of.split()), tokens=tokens)
            for each, (of, tokens) in classes.items()
        ),
        tuple(JobType(id=each, classes=tuple(of.split())) for each, of in (types or {}).items()),
        **options,
    )


class Request:
    """What a pool asks of one."""

    hops = 0

    def __init__(self, type_):
        self.type = type_


class Visit:
    """What a pool asks of one, and `expired`: it has ended by the time that it is popped."""

    def __init__(self, ref, type_, is_home=True):
        self.ref = ref
        self.request = Request(type_)
        self.is_home = is_home
        self.place = None
        self.refused_on = ()
        self.expired = False

    def __repr__(self):
        return f"{self.request.type}{self.ref}"


class DrivenPool:
    """A pool, and what a machine would do with it. `check` runs after each step."""

    def __init__(self, pool, service_s=1.0, delivery_s=0.0):
        self.servers = TokenServers(
            pool, TypeGroups.of({"a": pool}), "a", service_s, delivery_s, 0.0
        )
        self.ids = [each.id for each in pool.servers]
        self.visits = {}
        self.started = []
        """Refs with their servers, in order."""

    def at(self, now_s):
        self.servers.now_s = now_s
        return self

    def arrive(self, ref, type_="default", is_home=True):
        """Returns the server that it starts on, "seat" or "blocked"."""
        visit = self.visits[ref] = Visit(ref, type_, is_home)
        if self.servers.may_start(visit):
            self._start(visit)
            return self.checked(self.started[-1][1])
        seats = self.servers.seats(visit)
        self.servers.join(visit)
        return self.checked("seat" if seats else "blocked")

    def end(self, ref, how="done", service_s=0.0, until_s=0.0, rests_until_s=None):
        """A job ends: done, failed, stopped, refused, or cools after it has failed. What ran it may
        ask to be left alone."""
        if how != "done":
            self.servers.not_done(ref, failed=how in {"failed", "cools", "refused"})
        if how in {"refused", "failed", "cools"}:
            self.servers.said(ref, "not_run" if how == "refused" else "failed", how)
        if how == "cools":
            self.servers.cool(ref, until_s)
        else:
            self.servers.vacate(ref)
        if how == "done":
            self.servers.served(ref, service_s)
        if rests_until_s is not None:
            self.servers.rest(ref, rests_until_s)
        if how == "refused":
            return self._decide_again(self.visits[ref])
        return self.serve()

    def _decide_again(self, visit):
        """What was surely not done."""
        self.servers.refused(visit)
        if self.servers.may_start(visit):
            self._start(visit)
            return [visit.ref, *self.serve()]
        self.servers.join(visit)
        return self.serve()

    def rest(self, ref, until_s):
        """What ran the one that ended last asks to be left alone. Returns whether now all are."""
        rest_all = self.servers.rest(ref, until_s)
        self.serve()
        return rest_all

    def leave(self, ref):
        self.servers.leave(self.visits[ref])
        return self.serve()

    def serve(self):
        """Returns whom the pool lets start now."""
        since = len(self.started)
        while (visit := self.servers.pop()) is not None:
            assert visit.place is None
            if not visit.expired:
                self._start(visit)
        return self.checked([ref for ref, _ in self.started[since:]])

    def limit(self, **limits):
        self.servers.set_tokens(limits, {})
        return self.serve()

    def put(self, **servers_in):
        self.servers.set_tokens({}, servers_in)
        return self.serve()

    def change(self, server, up):
        self.servers.server_changed(self.ids.index(server), up, self.servers.now_s)
        return self.serve()

    def wake(self, now_s):
        self.at(now_s).servers.wake(now_s)
        return self.serve()

    def counts(self, class_id):
        """Returns its tokens, by where they are."""
        return self.servers.bucket.counts(self.servers.class_ids.index(class_id))

    def checked(self, result):
        self.servers.check()
        return result

    def _start(self, visit):
        server = self.servers.occupy(visit)
        self.started.append((visit.ref, self.ids[server]))
