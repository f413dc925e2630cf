"""Whole nodes on loopback as in `federation`, with certificates between them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from spillover.apps.http.server import HttpServer
from spillover.apps.node.certificates import watching
from spillover.apps.node.exposure import CertifiedPeers
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.shell import NodeShell
from spillover.live.tls.contexts import trusting_context
from spillover.live.tls.rotation import Credentials
from spillover.model.certified_names import certified_name
from support.certificates import Authority, put
from support.federation import Federation

NEVER_S = 3600.0


def name_of(cluster):
    """In certificates of the federations that `topology_of` makes."""
    return certified_name(cluster, "test")


@dataclass
class SecureFederation(Federation):
    """One CA vouches for all nodes, whose files are in `directory`, unless `certify` is told
    otherwise before it is entered."""

    directory: Path = Path()
    authority: Authority = field(default_factory=Authority)
    files: dict = field(default_factory=dict)
    credentials: dict = field(default_factory=dict)

    scheme = "https"

    def certify(self, cluster, authority=None, name=None, trusted=None, **dates):
        """Write the files of a node: signed by this CA, for this name, trusting these."""
        authority = authority or self.authority
        signed = authority.sign(name or name_of(cluster), **dates)
        trusted = [self.authority] if trusted is None else trusted
        self.files[cluster] = put(self.directory, cluster, signed, *trusted)

    def make(self, cluster, url):
        if cluster not in self.files:
            self.certify(cluster)
        files = self.files[cluster]
        self.credentials[cluster] = credentials = Credentials(files, None)
        shell = NodeShell(self.topology, cluster, seed=self.seed, credentials=credentials)
        app = CertifiedPeers(self.app_of(shell, None), shell.neighborhood.peers)
        server = HttpServer(app, tls=credentials.front(ssl.CERT_OPTIONAL))
        watched = watching(credentials, shell, [server], NEVER_S)
        watched.__enter__()
        shell.on_close.append(lambda: watched.__exit__(None, None, None))
        context = trusting_context(files.ca)
        return shell, server, HttpClient(url, tls=context, server_name=name_of(cluster))
