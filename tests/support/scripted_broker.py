"""A broker that speaks as much of AMQP 0-9-1 as benchmarks need, in the loop of the test, as
RabbitMQ does: what is published to no queue is dropped, it confirms where it was asked to, and it
gives a consumer no more at a time than that one may hold.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pamqp import commands, frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

HEAD_BYTES = 7
FRAME_BYTES_MAX = 131_072
CAN = {"capabilities": {"publisher_confirms": True, "basic.nack": True}}


@dataclass
class Broker:
    """What it holds, and what it has seen."""

    url: str = ""
    queues: dict = field(default_factory=dict)
    """Objects by queue, of those that were declared."""
    confirmed: int = 0
    acknowledged: int = 0
    held_most: int = 0
    """Objects that one consumer had and had not acknowledged."""
    closed: int = 0
    """Connections that were ended as they should be."""
    consumers: list = field(default_factory=list)

    async def talk(self, reader, writer):
        await reader.readexactly(8)
        one = _Connection(self, writer)
        one.say(commands.Connection.Start(server_properties=CAN), 0)
        try:
            while True:
                head = await reader.readexactly(HEAD_BYTES)
                rest = await reader.readexactly(int.from_bytes(head[3:], "big") + 1)
                _, channel, told = frame.unmarshal(head + rest)
                one.hear(told, channel)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def give(self):
        for one in self.consumers:
            one.give()


class _Connection:
    def __init__(self, broker, writer):
        self._broker, self._writer = broker, writer
        self._confirms = False
        self._may_hold = self._size = self._tags = self._published = 0
        self._queue = self._tag = self._to = None
        self._body = b""
        self._held = set()

    def say(self, *frames_and_channel):
        *frames, channel = frames_and_channel
        self._writer.write(b"".join(frame.marshal(one, channel) for one in frames))

    def hear(self, told, channel):
        broker = self._broker
        match told:
            case commands.Basic.Publish():
                self._to, self._body = told.routing_key, b""
            case ContentHeader():
                self._size = told.body_size
            case ContentBody():
                self._body += told.value
                if len(self._body) == self._size:
                    self._keep(channel)
            case commands.Basic.Ack():
                self._held.remove(told.delivery_tag)
                broker.acknowledged += 1
                broker.give()
            case commands.Basic.Consume():
                self._queue, self._tag = told.queue, told.consumer_tag
                self.say(commands.Basic.ConsumeOk(self._tag), channel)
                broker.consumers.append(self)
                broker.give()
            case _:
                self._agree(told, channel)

    def _agree(self, told, channel):
        """To what needs no more than a word."""
        match told:
            case commands.Confirm.Select():
                self._confirms = True
            case commands.Basic.Qos():
                self._may_hold = told.prefetch_count
            case commands.Queue.Declare():
                held = self._broker.queues.setdefault(told.queue, [])
                self.say(commands.Queue.DeclareOk(told.queue, len(held), 0), channel)
            case commands.Connection.Close():
                self._broker.closed += 1
        if (answer := ANSWERS.get(type(told))) is not None:
            self.say(answer(), channel)

    def _keep(self, channel):
        held = self._broker.queues
        if self._to in held:
            held[self._to].append(self._body)
        self._published += 1
        if self._confirms:
            self._broker.confirmed += 1
            self.say(commands.Basic.Ack(self._published), channel)
        self._broker.give()

    def give(self):
        """What there is, up to what it may hold; without a limit all of it."""
        held = self._broker.queues.get(self._queue, [])
        while held and (not self._may_hold or len(self._held) < self._may_hold):
            body = held.pop(0)
            self._tags += 1
            self._held.add(self._tags)
            self._broker.held_most = max(self._broker.held_most, len(self._held))
            deliver = commands.Basic.Deliver(self._tag, self._tags, routing_key=self._queue)
            self.say(deliver, ContentHeader(body_size=len(body)), ContentBody(body), 1)


ANSWERS = {
    commands.Connection.StartOk: lambda: commands.Connection.Tune(0, FRAME_BYTES_MAX, 0),
    commands.Connection.Open: commands.Connection.OpenOk,
    commands.Connection.Close: commands.Connection.CloseOk,
    commands.Channel.Open: commands.Channel.OpenOk,
    commands.Channel.Close: commands.Channel.CloseOk,
    commands.Confirm.Select: commands.Confirm.SelectOk,
    commands.Basic.Qos: commands.Basic.QosOk,
}


@asynccontextmanager
async def broker():
    """One for as long as the block lasts."""
    told = Broker()
    server = await asyncio.start_server(told.talk, "127.0.0.1", 0)
    told.url = f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield told
    finally:
        server.close()
        await server.wait_closed()
