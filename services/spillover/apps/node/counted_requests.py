"""The ends of `POST /requests` over HTTP, as they are counted and logged: problems here, results
where they are given (`hot_paths`), and the end of a request in the shell's log."""

from __future__ import annotations

from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.node.pages import REQUESTS
from spillover.live.overflow.gateway_metrics import HttpByRoute
from spillover.live.overflow.request_log import is_logged, log_turned_away
from spillover.model.ids import told_inside


class CountedRequests:
    """The counted requests of one node."""

    def __init__(self, counts: HttpByRoute) -> None:
        self._counts = counts
        self.posts = counts["POST", REQUESTS]
        """The counts of `POST /requests`. Code that gives results counts here itself: a call would
        cost more."""

    def refuse(self, exchange: Exchange, problem: Problem, *, was_accepted: bool = False) -> None:
        """Answer with a problem. The log already has a line of a request that `was_accepted`."""
        # A request that a sibling has asked for and that is not known here ends at the sibling.
        is_elsewhere = exchange.asked_as and problem.reason == "unknown_request"
        if exchange.path == REQUESTS and not is_elsewhere:
            place = 0 if exchange.disconnected else problem.status // 100
            self._counts[exchange.method, REQUESTS].statuses[place] += 1
            if is_logged() and not was_accepted:
                name = None if problem.id is None else told_inside(problem.id)
                told = problem.status, problem.reason, name
                log_turned_away(exchange.method, exchange.path.encode(), *told)
        exchange.refuse(problem)
