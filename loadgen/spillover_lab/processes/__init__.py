"""One way for the tools to start processes of ours, to talk with them and to end them.

Commands, such as members and nodes, are the testbed's business. What a process does is known to
those who start it.
"""
