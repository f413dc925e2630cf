"""Membership in virtual time: clients that follow lists of servers, all at once (`rebalancing`) or
as their machines do (`sessions`, `following`)."""
