"""Membership in virtual time: clients that follow lists of servers (`rebalancing`), and clusters
whose configuration changes while they run (`history`)."""
