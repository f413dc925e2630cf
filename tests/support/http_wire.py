"""A transport without a socket, for connections of HTTP."""

import asyncio


class Wire(asyncio.Transport):
    """Stands for the socket."""

    def __init__(self):
        super().__init__()
        self.closing = False
        self.reading = True
        self.unsent = 0
        self.written = b""

    def writelines(self, list_of_data):
        self.written += b"".join(list_of_data)

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True

    def get_write_buffer_size(self):
        return self.unsent

    def is_reading(self):
        return self.reading

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        assert not self.closing
        self.reading = True
