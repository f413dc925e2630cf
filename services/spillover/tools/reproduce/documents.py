"""The five source documents in plain words, for readers who have read none of them.

The figures themselves are in one module for each document; how the page looks is in `page`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A source document, and what a reader has to know of it to understand its figures."""

    prefix: str
    """What the names of its figures begin with."""
    module: str
    """Under `spillover.tools.reproduce`; it has `FIGURES`."""
    citation: str
    heading: str
    problem: str
    mechanism: str
    reproduced: str
    left_open: str
    """What could not be done as printed, and what was done instead."""


DOCUMENTS = (
    Document(
        prefix="lai-polak",
        module="networked_queues",
        citation=(
            "Cheng-Jia Lai, Wolfgang Polak: A Collaborative Approach to Stochastic Load Balancing "
            "with Networked Queues of Autonomous Service Clusters"
        ),
        heading="Networked queues: one site's overload is another's idle time",
        problem=(
            "Several sites each have a few servers and a queue. When many users come to one site "
            "at once, its queue grows to hundreds of requests and takes long to empty, while the "
            "servers of the other sites are idle. One queue for all would be best, but needs a "
            "center that knows everything and never fails."
        ),
        mechanism=(
            "Each site keeps its own queue and tells its neighbors every 50 ms how likely it would "
            "take one more request. A request that comes to a long queue is, by a draw, kept or "
            "handed on to a neighbor, more likely to one that is willing, or whose own neighbors "
            "are. Nobody decides for all."
        ),
        reproduced=(
            "The users, servers, delays and bursts are the paper's: 5 servers a site, 40 ms a "
            "request, 35 ms between neighbors, one burst of 2 s at each site in turn. The very "
            "same requests go through isolated and through networked queues. The decisions are "
            "made by the code that Spillover's services run."
        ),
        left_open=(
            "Which site neighbors which is drawn in the paper's figure 4, and that drawing is "
            "lost: we use a ring of 5 sites, and rings of 10 and 20 in which each site also knows "
            "the next but one. The measured curves of the paper were pictures too, so that our "
            "numbers stand beside what its text says of them."
        ),
    ),
    Document(
        prefix="leases",
        module="leases",
        citation="henrik.org: Algorithm for distributed load balancing of batch processing, 2015",
        heading="Partition leases: sharing out work without a leader",
        problem=(
            "A stream of work is split into partitions, and each partition is to be worked on by "
            "exactly one of several computers. Computers come, go and die, and nobody is in charge "
            "of sharing out."
        ),
        mechanism=(
            "Now and then each computer challenges the others for partitions that it does not "
            "have. Everybody waits a little, the longer the more partitions it has, and whoever "
            "writes its name into a shared store first has the partition. So the one with the "
            "least to do should win."
        ),
        reproduced=(
            "The author warns that this does not work in practice: a busy computer answers late "
            "and loses what it has. We run the rule as written, message by message, see it fail "
            "for that very reason, and run a repaired one (ours) under the same conditions: the "
            "wait only spreads the contenders, and what the store counts decides."
        ),
        left_open=(
            "The document has no figures, so this experiment is ours. Its formulas for the wait "
            "are each printed in two ways that do not agree: we run three readings and say where "
            "they differ."
        ),
    ),
    Document(
        prefix="comte",
        module="tokens",
        citation="Céline Comte: Dynamic Load Balancing with Tokens",
        heading="Tokens: unlike servers, picky jobs, and no knowledge of rates",
        problem=(
            "Servers differ in speed, and not every server can do every type of job. To share out "
            "the jobs well one would have to know how many of each type will come and how fast "
            "each server is; both change, and a wrong guess overloads the slow servers."
        ),
        mechanism=(
            "Each server has a few tokens, all in one bucket in the order in which they were last "
            "released. A job takes the compatible token that has lain there longest and gives it "
            "back when it is done; without a compatible token it is turned away (blocked). Fast "
            "servers give their tokens back sooner, and so get more jobs, without anybody knowing "
            "a rate."
        ),
        reproduced=(
            "The share of jobs that is turned away, and how much of the servers' capacity is used, "
            "against the load: computed from the paper's formulas, exactly, and simulated. Beside "
            "it the best that anybody could do (ideal), and the two rivals that share out jobs by "
            "fixed odds: with all rates known (best static) and without (uniform static)."
        ),
        left_open=(
            "The paper calls the mechanism insensitive: what comes out should depend on the mean "
            "size of jobs alone. That is exact where all jobs on a server have sizes of one "
            "distribution, but not where sizes depend on the type of job, as in its figure 13; a "
            "careful simulation shows the small difference."
        ),
    ),
    Document(
        prefix="johnson",
        module="probing",
        citation="Theodore Johnson: Designing a Distributed Queue",
        heading="A distributed queue: consumers that go looking",
        problem=(
            "Many producers make objects and many consumers use them up. One queue in the middle "
            "would be a bottleneck: every object would pass through it."
        ),
        mechanism=(
            "Each producer keeps a few finished objects in a buffer of its own, and stops when it "
            "is full. A consumer sends a request to a producer drawn at random; if that has "
            "nothing, the request hops to another one, and at the last of at most h_max probes it "
            "waits until something is made there."
        ),
        reproduced=(
            "How many probes and how much waiting that takes, against the limit of probes, the "
            "size of the buffers, unlike producers and restricted choice: the paper's equations as "
            "lines, a simulation of the protocol as points. The load is demand over supply: at "
            "50 % producers are idle half of the time, at 200 % consumers are."
        ),
        left_open=(
            "Some of the printed equations contain slips, such as a blocking probability counted "
            "twice; the corrected ones are used and are listed beside the code. The equations "
            "describe infinitely many producers: with 100 of them and a load of exactly 100 % real "
            "waits are up to 13 per cent longer. And they miss that a consumer with few producers "
            "to choose from often probes an empty one again."
        ),
    ),
    Document(
        prefix="membership",
        module="membership",
        citation=(
            "Alexander Shraer, Benjamin Reed: Load-Balancing Clients-Server Connections During "
            "Membership Change"
        ),
        heading="Clients that move when servers come and go",
        problem=(
            "A thousand clients hold connections to a handful of servers. When a server goes, its "
            "clients have to go elsewhere; when one comes, it should get its share. Yet each move "
            "costs client and server work, and asking the servers who should move costs more."
        ),
        mechanism=(
            "All clients learn the new list of servers, and each decides alone, by a draw whose "
            "odds follow from the two lists: stay, move to a new server, or move to a surviving "
            "one. The odds are such that all servers can expect the same number of clients, and "
            "that as few clients as possible move."
        ),
        reproduced=(
            "The paper's experiment: 1 000 clients on 9 servers; then one random server goes, then "
            "two more, then one goes and the three come back, then the last one comes back. Beside "
            "the paper's rule the two rivals it is compared with, and one of ours that needs no "
            "draws. The paper shows one run; here are many, with the range of what happens."
        ),
        left_open=(
            "The text says that two servers are added in the third step where it adds three. Which "
            "servers went is not told and does not matter: they are drawn anew for each run."
        ),
    ),
    Document(
        prefix="policies",
        module="policies",
        citation="Spillover, decision record 0037 (ours, after Lai & Polak and Johnson)",
        heading="Our rule beside the others: by what is known, and how old it is",
        problem=(
            "The paper's rule draws lots: it hardly minds old reports, but keeps requests although "
            "a neighbor is idle, and leaves a quarter to a half of what one queue for all would "
            "gain. Rules that go to the shortest queue do better while they know it, and worse "
            "when they do not."
        ),
        mechanism=(
            "A request goes where the expected wait there and the way are less than the wait here; "
            "what was sent and is not reported yet counts, and so does what drains on the way. "
            "Every message carries its sender's load. The older that is, the more the paper's lots "
            "decide. And a site with an idle server asks neighbors that seem to have work waiting."
        ),
        reproduced=(
            "The same requests through isolated queues, the paper's rule, two-choice and ours: on "
            "the paper's bursts, and at even loads with services, ways and reports of every kind."
        ),
        left_open=(
            "Faults are not in these figures; the services' own code under faults is what the "
            "tests and `spillover sim overflow --faults` run."
        ),
    ),
)
