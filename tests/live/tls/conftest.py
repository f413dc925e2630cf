"""What tests of encrypted connections share. Nothing here starts a node."""

import pytest

from spillover.live.tls.material import read_material
from support.certificates import Authority, put


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """What node a has: its certificate, its key, and the CA that it believes."""
    authority = Authority()
    files = put(tmp_path_factory.mktemp("tls"), "a", authority.sign("a.test.spillover"), authority)
    return read_material(files, None)
