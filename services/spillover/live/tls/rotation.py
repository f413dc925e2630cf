"""The certificate of a service and the CAs that it believes are exchanged while it runs: files are
looked at again and again, what is wrong with them is logged and changes nothing, and what is right
holds from the next handshake on. Connections that were made before are for others to end; this says
which ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from typing import Protocol

from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.tls.certified import PeerCertificate
from spillover.live.tls.contexts import client_context, server_context
from spillover.live.tls.failures import REASONS, in_words, is_of_handshake, reason_of
from spillover.live.tls.handshakes import Front
from spillover.live.tls.material import Material, TlsFiles, described, read_material
from spillover.live.tls.rehearsal import why_refused
from spillover.model.errors import InputError

LOOK_S = 10.0
"""The time between two looks at the files. A signal makes it sooner."""

IN, OUT = "in", "out"
"""The side that began a handshake: another one, or this service."""

_log = logging.getLogger(__name__)
_handshakes_log = logging.getLogger(f"{__name__}.handshakes")
"""Anybody can begin one."""
_handshakes_log.addFilter(OncePerPeriod())


class OnLook(Protocol):
    """Is called after each look; `renewed`: there are other certificates now, own ones or CAs."""

    def __call__(self, credentials: Credentials, *, renewed: bool) -> None: ...


class Credentials:
    """The credentials of one service, whose certificate has to be for `name` (None: for any).
    Raises InputError where the files are not right."""

    def __init__(self, files: TlsFiles, name: str | None) -> None:
        self._files = files
        self._name = name
        self.material = read_material(files, name)
        self.client = client_context(self.material)
        self._servers: dict[ssl.VerifyMode, ssl.SSLContext] = {}
        self._cas_went = False
        self._vouched: dict[bytes, bool] = {}
        self._complaint = ""
        self._woken = asyncio.Event()
        self.failures = {(side, reason): 0 for side in (IN, OUT) for reason in REASONS}
        """Handshakes that have failed."""
        self.on_look: list[OnLook] = []
        self._say_warnings()

    def front(self, callers: ssl.VerifyMode) -> Front:
        """Returns what to listen with for good; see `server_context` for `callers`. Each
        handshake goes by the newest one."""
        self._servers[callers] = server_context(self.material, callers=callers)
        return Front(lambda: self._servers[callers], self._failed_in)

    # --- looking ------------------------------------------------------------------------------

    async def watch(self, period_s: float = LOOK_S) -> None:
        """Look at the files for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), period_s)
            self._woken.clear()
            await self.look()

    def wake(self) -> None:
        self._woken.set()

    async def look(self) -> bool:
        """Look at the files once, and go by them if they are other than before, and right. Returns
        whether that is so."""
        try:
            material = await asyncio.to_thread(self._read)
        except RuntimeError as error:  # no thread is to be had
            material = None
            self._complain(InputError(self._files.cert, "", f"expected to read it, got: {error}"))
        if material is not None:
            material = self._go_by(material)
        for told in self.on_look:
            told(self, renewed=material is not None)
        self._cas_went = False
        return material is not None

    def is_over(self, shown: PeerCertificate) -> bool:
        """Returns whether what was shown on a connection holds no more. Asked within `on_look`."""
        if shown.not_after_s <= time.time():
            return True
        if not self._cas_went:
            return False
        if shown.der not in self._vouched:
            chain = shown.chain or (shown.der,)
            self._vouched[shown.der] = any(map(self.material.vouches_for, chain))
        return not self._vouched[shown.der]

    def _read(self) -> Material | None:
        """Returns what the files have, if that is new and good; in a thread, since disks may be
        slow."""
        if self.material.is_as_in_files():
            self._complaint = ""
            return None
        try:
            return read_material(self._files, self._name)
        except InputError as error:
            self._complain(error)
        except Exception as error:  # noqa: BLE001 - no file may end a node that runs
            told = f"expected certificates that can be read, got {type(error).__name__}: {error}"
            self._complain(InputError(self._files.cert, "", told))
        return None

    def _go_by(self, material: Material) -> Material | None:
        try:
            client = client_context(material)
            servers = {one: server_context(material, callers=one) for one in self._servers}
        except InputError as error:
            self._complain(error)
            return None
        if not material.is_as_in_files():
            return None  # they are being written: what was loaded may be something in between
        self._cas_went = not set(self.material.cas) <= set(material.cas)
        self._vouched = {}
        self.material, self.client, self._servers = material, client, servers
        self._complaint = ""
        _log.info(Message("certificates are renewed", certificate=described(material.leaf)))
        self._say_warnings()
        return material

    def _complain(self, error: InputError) -> None:
        """Once for each thing that is wrong."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.error(Message("certificates stay as they were", reason=self._complaint))

    def _say_warnings(self) -> None:
        refused = why_refused(self.material, self._name)
        for warning in (*self.material.warnings, *filter(None, [refused])):
            _log.warning(Message("certificates", reason=warning))

    # --- what fails ---------------------------------------------------------------------------

    def failed_out(self, reason: str) -> None:
        """A handshake that this service began has failed."""
        self.failures[OUT, reason] += 1

    def _failed_in(self, error: Exception, address: str | None) -> None:
        if is_of_handshake(error):
            failure, words = reason_of(error), in_words(error)
            self.failures[IN, failure] += 1
            told = Message("handshake failed", failure=failure, reason=words, address=address)
            _handshakes_log.info(told)
