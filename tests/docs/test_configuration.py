"""The generated page of the reference: it is what the generator writes, and explains everything
that users can set."""

import re
from pathlib import Path

import pytest

from spillover.inputs.topology_file import load_topology

SERVICES = Path(__file__).parents[2] / "services"
PAGE = SERVICES / "docs" / "configuration.md"


@pytest.fixture(autouse=True, scope="module")
def _package_is_found():
    """In services/ alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SERVICES)
        yield


@pytest.fixture(scope="module")
def written():
    """The page as the generator writes it now."""
    from docs.configuration import configuration_page

    return configuration_page()


def test_the_committed_page_is_what_the_generator_writes(written):
    assert PAGE.read_text(encoding="utf-8") == written, "stale: run `make reference`"


def test_the_examples_are_what_is_read(written, tmp_path):
    """Of topologies: each can be copied as it stands."""
    part = re.split(r"^## ", written, flags=re.MULTILINE)[1]
    examples = re.findall(r"^```yaml\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for text in examples:
        file = tmp_path / "example.yaml"
        file.write_text(text)
        assert len(load_topology(str(file)).clusters) == 2


def test_each_reason_belongs_to_an_option():
    """Reasons of options that are gone, or were renamed, are found out."""
    from docs.configuration import COMMANDS_SHOWN
    from docs.option_reasons import REASONS
    from docs.options import names_of

    names = {command: names_of(command) for command in COMMANDS_SHOWN}
    known = {name for found in names.values() for name in found}
    known |= {f"{command} {name}" for command, found in names.items() for name in found}
    unknown = sorted(set(REASONS) - known)
    assert not unknown, f"reasons without an option, in services/docs/option_reasons.py: {unknown}"
