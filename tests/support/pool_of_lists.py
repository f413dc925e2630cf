"""The pool of unlike servers once more, as decision 0038 says it: lists that are scanned from
beginning to end. What the real one must agree with after each step."""


class PoolOfLists:
    """`bucket` lists the classes of the available tokens in order of release; `held` has a
    (class, ref) for each token that is not there, `out` counts the rest."""

    def __init__(self, pool):
        self.fcfs = pool.discipline == "fcfs"
        self.rate = {each.id: each.rate for each in pool.servers}
        self.servers_of = {each.id: list(each.servers) for each in pool.classes}
        self.joins = {each.id: each.classes for each in pool.types}
        self.limit = {each.id: each.tokens for each in pool.classes}
        rounds = range(max(self.limit.values()))
        self.bucket = [id_ for place in rounds for id_, n in self.limit.items() if place < n]
        self.out = dict.fromkeys(self.limit, 0)
        self.held = []
        self.start = dict.fromkeys(self.limit)
        """By class: [served, come back] in its slow start."""
        self.allowed = dict.fromkeys(self.rate)
        """By server: how many jobs it counts as full with, in its slow start."""
        self.closed = set()
        self.jobs = {}
        """ref: (class, server), those that cool too."""
        self.line = {each: [] for each in self.rate}
        """By server: (ref, class) of those in their seats."""
        self.blocked = []
        """Refs, in order of arrival."""
        self.type_of = {}
        self.refused_on = {}
        """By ref: servers that go without it."""
        self.came = []
        self.ended = list(self.rate)
        """Servers, by when they last ended a job."""
        self.halted = False

    # --- tokens ---------------------------------------------------------------------------------

    def made(self, class_id):
        held = [ref for id_, ref in self.held if id_ == class_id]
        return self.bucket.count(class_id) + self.out[class_id] + len(held)

    def is_closed(self, class_id):
        return self.closed.issuperset(self.servers_of[class_id])

    def fits(self, ref):
        """Returns the class of the longest available token that the visit may take."""
        classes = self.joins.get(self.type_of[ref], ())
        classes = [id_ for id_ in classes if self.others(ref, id_)] or classes
        return next((id_ for id_ in self.bucket if id_ in classes), None)

    def others(self, ref, class_id):
        """Returns the servers of a class that take jobs, without those that go without this one."""
        there = [each for each in self.servers_of[class_id] if each not in self.closed]
        return [each for each in there if each not in self.refused_on.get(ref, ())]

    def refuse(self, ref, server):
        """Its job, which has ended on this server, surely was not done; it is decided again."""
        type_ = self.type_of[ref]
        self.refused_on[ref] = {*self.refused_on.get(ref, ()), server}
        if not any(self.others(ref, id_) for id_ in self.joins[type_]):
            self.refused_on[ref] = {server}
        self.came.remove(ref)
        return self.arrive(ref, type_)

    def take(self, ref):
        class_id = self.fits(ref)
        self.bucket.remove(class_id)
        self.held.append((class_id, ref))
        return class_id, self.least_busy(class_id, ref)

    def least_busy(self, class_id, ref):
        def order(server):
            jobs = self.running(server) + len(self.line[server])
            allowed = self.allowed[server]
            is_full = allowed is not None and jobs >= allowed
            return is_full, jobs / self.rate[server], self.ended.index(server)

        there = [each for each in self.servers_of[class_id] if each not in self.closed]
        return min(self.others(ref, class_id) or there, key=order)

    def running(self, server):
        return [one for _, one in self.jobs.values()].count(server)

    def places(self, server):
        if self.fcfs:
            return 1
        return sum(n for id_, n in self.limit.items() if server in self.servers_of[id_])

    def give_back(self, class_id, ref, served):
        start = self.start[class_id]
        if start and served:
            start[0] += 1
        too_many = self.made(class_id) > self.limit[class_id]
        self.held.remove((class_id, ref))
        if not too_many:
            if self.is_closed(class_id) or (start and not served):
                self.out[class_id] += 1
            else:
                self.bucket.append(class_id)
        self.come_back(class_id)

    def come_back(self, class_id):
        start = self.start[class_id]
        if start is None:
            return
        if start[0] + 1 >= self.limit[class_id]:
            self.start[class_id] = None
            self.bucket += [class_id] * self.out[class_id]
            self.out[class_id] = 0
            return
        while self.out[class_id]:
            is_none_there = self.made(class_id) == self.out[class_id]
            if start[1] > start[0] and not is_none_there:
                break
            start[1] += 1
            self.out[class_id] -= 1
            self.bucket.append(class_id)

    # --- visits -----------------------------------------------------------------------------------

    def arrive(self, ref, type_):
        self.type_of[ref] = type_
        self.came.append(ref)
        class_id = None if self.halted else self.fits(ref)
        if class_id is not None:
            server = self.least_busy(class_id, ref)
            if not self.fcfs or not (self.running(server) or self.line[server]):
                self.jobs[ref] = self.take(ref)
                return server
        self.block(ref)
        self.seat()
        return "blocked" if ref in self.blocked else "seat"

    def block(self, ref):
        self.blocked.append(ref)
        self.blocked.sort(key=self.came.index)

    def seat(self):
        if not self.fcfs or self.halted:
            return
        while (ref := next((one for one in self.blocked if self.fits(one)), None)) is not None:
            self.blocked.remove(ref)
            class_id, server = self.take(ref)
            self.line[server].append((ref, class_id))

    def serve(self, expired):
        """Returns who starts, those that have expired left out."""
        started = []
        while not self.halted:
            self.seat()
            if self.fcfs:
                ready = {one[0][0]: server for server, one in self.line.items() if one}
                ready = {ref: at for ref, at in ready.items() if not self.running(at)}
                if not ready:
                    break
                ref, server = next(iter(ready.items()))
                _, class_id = self.line[server].pop(0)
                if ref in expired:
                    self.give_back(class_id, ref, served=False)
                    continue
                self.jobs[ref] = class_id, server
            else:
                ref = next((one for one in self.blocked if self.fits(one)), None)
                if ref is None:
                    break
                self.blocked.remove(ref)
                if ref in expired:
                    continue
                self.jobs[ref] = self.take(ref)
            started.append(ref)
        return started

    def leave(self, ref):
        if ref in self.blocked:
            self.blocked.remove(ref)
            return
        for line in self.line.values():
            for one in [one for one in line if one[0] == ref]:
                line.remove(one)
                self.give_back(one[1], ref, served=False)
        self.seat()

    def grew(self, server):
        """A job of this server has ended well."""
        if self.allowed[server] is not None:
            more = self.allowed[server] + 1
            self.allowed[server] = more if more < self.places(server) else None

    def freed(self, ref, served):
        class_id, server = self.jobs.pop(ref)
        self.ended.remove(server)
        self.ended.append(server)
        self.give_back(class_id, ref, served)

    # --- what changes ---------------------------------------------------------------------------

    def set_limit(self, class_id, limit):
        self.limit[class_id] = limit
        while self.made(class_id) < limit:
            if self.is_closed(class_id) or self.start[class_id]:
                self.out[class_id] += 1
            else:
                self.bucket.append(class_id)
        while self.made(class_id) > limit and (self.out[class_id] or class_id in self.bucket):
            if self.out[class_id]:
                self.out[class_id] -= 1
            else:
                newest = len(self.bucket) - 1 - self.bucket[::-1].index(class_id)
                del self.bucket[newest]
        self.come_back(class_id)

    def settle(self, server, closed):
        if closed == (server in self.closed):
            return
        classes = [id_ for id_, servers in self.servers_of.items() if server in servers]
        were = {id_: self.is_closed(id_) for id_ in classes}
        self.closed ^= {server}
        for id_ in classes:
            if self.is_closed(id_):
                self.start[id_] = None
                self.out[id_] += self.bucket.count(id_)
                self.bucket = [one for one in self.bucket if one != id_]
            elif were[id_]:
                self.start[id_] = [0, 0]
                self.come_back(id_)
        if closed:
            for ref, id_ in self.line[server]:
                self.block(ref)
                self.give_back(id_, ref, served=False)
            self.line[server] = []
        else:
            self.allowed[server] = 1 if self.places(server) > 1 else None
        self.seat()
