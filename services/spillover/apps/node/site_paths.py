"""Clients' requests at one node of a site of several: which of them another node answers, since
their names belong there, or are known there (decision 0049).

A new name belongs to the node that `core.overflow.names` says. Where nodes have come or gone lately
the others are asked first whether they remember it. What is asked for by name and not known here is
asked of the others. What a request means is in `hot_paths`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import quote

from spillover.apps.http.exchange import ClientGone, Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.node.lookups import LOOKED_AT, LOOKUP_PREFIX
from spillover.apps.node.one_face import ASKED_OF_ALL
from spillover.apps.node.pages import REQUESTS
from spillover.apps.node.peer_paths import check_sibling
from spillover.live.http1.outgoing import Response
from spillover.live.http1.written import head_lines
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.agreement import CLUSTER_HEADER
from spillover.live.overflow.identity import HELLO
from spillover.live.overflow.protocol import AT_SIBLING, PEER_PREFIX
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.site import Site
from spillover.model.errors import NotDelivered, PeerError
from spillover.model.ids import request_id_of

EXPLAIN_PREFIX = "/explain/"
"""The path before a request's name, to ask what happened to it."""

ASKED_AS = b"spillover-site"
"""The header of what one node passes on to another one: OWNER, KNOWN or LOOKED_AT."""

OWNER = b"owner"
"""The word that the name belongs to the node that is asked."""

KNOWN = b"known"
"""The word that the node that is asked is to answer only if it knows the name."""

ELSEWHERE = b"spillover-elsewhere"
"""The header of an answer which says that the name does not belong to the node, or is not known
there."""

AGAIN_S = 0.02
"""The pause, in seconds, between two looks at which node has a name, while nodes come and go."""

LOOKS_MAX = 50
"""The most attempts at a node that may know a request and cannot be asked, AGAIN_S apart. A dead
node has left the site by then."""

LOOKUP_S = 900.0
"""The time, in seconds, that a sibling has to tell of a request: as long as a client may wait."""

_OF_CONNECTION = frozenset({
    *(b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"te", b"trailer"),
    *(b"transfer-encoding", b"upgrade", b"date", b"server", ASKED_AS, ELSEWHERE, HELLO),
    CLUSTER_HEADER,
    # These tell of a browser's page. The node that the browser has asked has let it in, and
    # siblings admit no pages to the calls between nodes.
    *(b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user"),
})  # fmt: skip
"""The headers that are not passed on."""


class SitePaths:
    """The paths of clients at a node that has siblings."""

    def __init__(self, shell: NodeShell, site: Site) -> None:
        self._shell = shell
        self._site = site
        self._cluster_line = head_lines([(CLUSTER_HEADER, shell.cluster.id.encode())])

    def is_of_sibling(self, exchange: Exchange) -> bool:
        """Returns whether another node passes this on, and turns the exchange into what its client
        has asked. Raises Problem if somebody else claims to pass it on."""
        if not exchange.path.startswith(AT_SIBLING):
            return False
        check_sibling(self._shell, exchange)
        path = exchange.path.removeprefix(AT_SIBLING)
        is_of_request = path == REQUESTS or path.startswith((LOOKUP_PREFIX, EXPLAIN_PREFIX))
        is_goodbye = path == SESSION and exchange.method == "DELETE"
        of_process = path in ASKED_OF_ALL and self._shell.shares_address
        if not (is_of_request or is_goodbye or of_process):
            raise Problem("not_found", f"{exchange.path}: expected what one node asks of another")
        exchange.path = path
        asked_as = dict(exchange.headers).get(ASKED_AS, KNOWN)
        exchange.asked_as = asked_as if asked_as in (OWNER, LOOKED_AT) else KNOWN
        return True

    def tell_cluster(self, exchange: Exchange) -> None:
        """Have the answer to a client name the cluster of this node: names belong to the cluster,
        so that a client may go on at another node of it."""
        if not exchange.path.startswith(PEER_PREFIX):
            exchange.header_lines += self._cluster_line

    # --- requests that come -------------------------------------------------------------------

    def is_here(self, exchange: Exchange, name: str | None, tenant: str) -> bool:
        """Returns whether a request of this name surely is answered here, so that no other node has
        to be asked. It is if it has no name, unless this node takes nothing more and others do."""
        if name is None:
            takes_nothing = self._shell.machine.admission.emptying and not exchange.asked_as
            return not (takes_nothing and self._site.staying)
        if self._is_home(name, tenant):
            return True
        site = self._site
        is_own = site.owner(name) == site.number and not exchange.asked_as
        is_free = is_own and not site.siblings.is_closed
        return is_free and not (site.may_have_moved and site.others)

    async def answer(
        self, exchange: Exchange, name: str | None, tenant: str, body: bytes, within_s: float
    ) -> bool:
        """Have another node answer a request that is its own, or any if this node takes nothing
        more. Returns False if it is to be answered here. Raises Problem, and ClientGone."""
        if name is not None and exchange.asked_as == KNOWN:
            raise _elsewhere(name)
        moving = self._shell.room.moving
        moving.add(len(body))
        try:
            with self._passing_on(name):
                async with asyncio.timeout(within_s):
                    if name is None:
                        return await self._hand_over(exchange, body, within_s)
                    return await self._answer(exchange, name, tenant, body, within_s)
        except TimeoutError:
            detail = "the deadline passed before another node had answered"
            is_keyed = name is not None
            raise Problem("deadline_exceeded", detail, id=name, is_keyed=is_keyed) from None
        finally:
            moving.add(-len(body))

    @contextmanager
    def _passing_on(self, name: str | None) -> Iterator[None]:
        """Counts a request that waits for other nodes. Raises Problem if too many wait."""
        site = self._site
        _check_room(site.passed_on, site.passed_on_max, name)
        site.passed_on += 1
        try:
            yield
        finally:
            site.passed_on -= 1

    @contextmanager
    def _looking_up(self, name: str) -> Iterator[None]:
        """Counts a question that waits for other nodes. Raises Problem if too many wait."""
        site = self._site
        _check_room(site.looked_up, site.looked_up_max, name)
        site.looked_up += 1
        try:
            yield
        finally:
            site.looked_up -= 1

    async def _answer(
        self, exchange: Exchange, name: str, tenant: str, body: bytes, within_s: float
    ) -> bool:
        site, has_failed = self._site, False
        while not self._is_home(name, tenant):
            owner = site.owner(name)
            if exchange.asked_as and owner != site.number:
                raise _elsewhere(name)
            view, told = site.siblings.view, None
            if owner == site.number and site.may_have_moved:
                told = await self._known_elsewhere(exchange, body, within_s)
            elif owner is not None and owner != site.number:
                told = await self._ask(owner, exchange, OWNER, body, within_s)
            if isinstance(told, Response):
                _pass_back(exchange, told)
                return True
            is_settled = site.siblings.is_settled and site.siblings.view == view
            is_free = owner == site.number and told is None and is_settled
            if is_free and not site.siblings.is_closed:
                return False
            may_run = told is not None and not isinstance(told, NotDelivered)
            if may_run and has_failed:
                detail = "the node that has the name gives no answer that can be passed on"
                raise Problem("outcome_unknown", detail, id=name, is_keyed=True)
            has_failed = has_failed or may_run
            if site.gives_up:
                # What came to a node while it drained may run elsewhere when its door is closed.
                is_sure = owner == site.number and not has_failed
                reason = "draining" if is_sure else "outcome_unknown"
                detail = "all nodes of the cluster drain, and none of them has answered"
                raise Problem(reason, detail, id=name, is_keyed=True)
            await asyncio.sleep(AGAIN_S)
        return False

    async def _hand_over(self, exchange: Exchange, body: bytes, within_s: float) -> bool:
        """Have a node that does not drain answer a request; returns whether there is one. Raises
        Problem if the request is lost."""
        for other in self._site.staying:
            told = await self._ask(other, exchange, OWNER, body, within_s, may_run_twice=False)
            if isinstance(told, Response):
                _pass_back(exchange, told)
                return True
            if told is not None and not isinstance(told, NotDelivered):
                detail = "the node to which it was handed over gives no answer"
                raise Problem("outcome_unknown", detail)
        return False

    async def _known_elsewhere(
        self, exchange: Exchange, body: bytes, within_s: float
    ) -> Response | PeerError | None:
        """Returns the answer of the node that already knows the name; None if there is none.
        Returns the error of a node that may know it and does not tell."""
        failed = None
        for other in self._site.others:
            told = await self._ask(other, exchange, KNOWN, body, within_s)
            if isinstance(told, Response):
                return told
            failed = told or failed
        return failed

    # --- requests that are asked for ----------------------------------------------------------

    async def look_up(self, exchange: Exchange, tenant: str, prefix: str = LOOKUP_PREFIX) -> bool:
        """Have another node tell of a request that is not known here. Returns False if no node
        knows it, or it is known here. Raises Problem, and ClientGone."""
        name = exchange.path.removeprefix(prefix)
        if exchange.asked_as or self.is_known(name, tenant):
            return False
        with self._looking_up(name):
            unsure = set(self._site.others)
            for _ in range(LOOKS_MAX):
                for other in sorted(unsure):
                    told = await self._ask(other, exchange, KNOWN, b"", LOOKUP_S)
                    if isinstance(told, Response) and told.status != 404:
                        _pass_back(exchange, told)
                        return True
                    if not isinstance(told, PeerError):
                        unsure.remove(other)
                unsure &= set(self._site.others)
                if not unsure:
                    return False
                await asyncio.sleep(AGAIN_S)
        detail = "a node of the site that may know the request cannot be asked now"
        raise Problem("queue_full", detail, id=name, retry_after_s=1.0)

    def is_known(self, name: str, tenant: str) -> bool:
        """Returns whether this node can tell anything of a request of this name."""
        visit = self._shell.requests.visit_of(request_id_of(tenant, name))
        return visit is not None or self._is_home(name, tenant)

    def _is_home(self, name: str, tenant: str) -> bool:
        """Returns whether this node has taken a request of this name. A visit of a neighbor's
        request, which may have the same name, does not say where the name belongs."""
        return self._shell.requests.home.find(request_id_of(tenant, name)) is not None

    async def _ask(
        self,
        number: int,
        exchange: Exchange,
        asked_as: bytes,
        body: bytes,
        within_s: float,
        *,
        may_run_twice: bool = True,
    ) -> Response | PeerError | None:
        """Returns the answer of a sibling; None if it has none, as it is gone or the name is not
        its own.

        Returns the error of a sibling that may be there and gives no answer, since it may also have
        the request of that name; and the error of one that is gone, unless the request
        `may_run_twice`. Raises Problem, and ClientGone as soon as nobody waits any more.
        """
        headers, method = _passed(exchange.headers), exchange.method
        query = exchange.query.decode("latin-1")
        if method == "HEAD":  # which nodes do not send each other, and which waits for nothing
            method, query, asked_as = "GET", "", LOOKED_AT
            headers = [header for header in headers if header[0] != b"prefer"]
        headers.append((ASKED_AS, asked_as))
        path = quote(exchange.path) + (f"?{query}" if query else "")  # unquoted when it came
        try:
            asked = self._site.pass_on(
                number, method, path, headers=headers, body=body, timeout_s=within_s
            )
        except NotDelivered:
            return None
        except ValueError as error:
            raise Problem("invalid", "its head cannot be passed on to another node") from error
        exchange.watch(partial(_client_gone, asked))
        try:
            told = await asked
        except PeerError as error:
            # A node that has closed its door may wait for this one, which must not wait for it.
            is_there = number in self._site.others and not self._site.is_over(number, error)
            return error if is_there or not may_run_twice else None
        finally:
            if not exchange.response_complete:
                exchange.unwatch()
        return None if ELSEWHERE in told.headers else told


def _elsewhere(name: str) -> Problem:
    """Returns the problem that tells the asking node that the name is not known here."""
    headers = [(ELSEWHERE, b"1")]
    return Problem("unknown_request", "not known at this node", name, headers=headers)


def _check_room(under_way: int, at_most: int, name: str | None) -> None:
    """Raise Problem if too many requests wait for other nodes."""
    if under_way >= at_most:
        detail = "too many requests wait for other nodes of the site"
        raise Problem("queue_full", detail, id=name, retry_after_s=1.0)


def _client_gone(asked: asyncio.Future[Response]) -> None:
    if not asked.done():
        asked.set_exception(ClientGone())
        asked.cancel()  # which ends its exchange


def _passed(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name not in _OF_CONNECTION]


def _pass_back(exchange: Exchange, told: Response) -> None:
    lines = head_lines(_passed(list(told.headers.items())))
    if not exchange.is_gone:
        exchange.answer_raw(told.status, lines, told.body)
