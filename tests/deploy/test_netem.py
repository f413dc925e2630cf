"""deploy/netem/netem.sh: the commands it gives the kernel, and when.

`tc`, `ip`, `getent` and `sleep` are stand-ins. Whether a kernel that is told so delays anything is
not tested.
"""

import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[2] / "deploy" / "netem" / "netem.sh"
LIMIT_S = 30.0

IP = """\
[ "$*" = "-o route get 10.0.0.2" ] || [ "$*" = "-o route get 10.0.0.9" ] || exit 2
echo "$4 dev eth7 src 10.0.0.1 uid 0 \\\\    cache" """

GETENT = """\
[ "$1" = ahostsv4 ] || exit 1
while read -r host address; do
    [ "$host" != "$2" ] || { echo "$address STREAM $host"; echo "$address DGRAM"; found=1; }
done <"$HERE/addresses"
[ -n "${found-}" ]"""

SLEEP = """\
echo >>"$HERE/rounds"
if [ "$(wc -l <"$HERE/rounds")" -eq 4 ]; then mv "$HERE/later" "$HERE/addresses"; fi
exec $SLEEP 0.01"""
"""Four rounds with the first addresses, then the later ones."""


@pytest.fixture
def kernel(tmp_path):
    """A directory with stand-ins for what the script asks; what tc is told is in `told`."""
    for name in ("awk", "mv", "printf", "sed", "sh", "wc"):
        (tmp_path / name).symlink_to(shutil.which(name))
    put(tmp_path, "ip", IP)
    put(tmp_path, "getent", GETENT)
    put(tmp_path, "sleep", SLEEP)
    put(tmp_path, "tc", 'echo "$*" >>"$HERE/told"')
    resolve(tmp_path, {"node-b": "10.0.0.2", "node-e": "10.0.0.5"})
    return tmp_path


def put(directory, name, script):
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def resolve(kernel, hosts, later=None):
    """The addresses, and what they are later on."""
    for name, found in (("addresses", hosts), ("later", hosts if later is None else later)):
        (kernel / name).write_text("".join(f"{host} {each}\n" for host, each in found.items()))


@contextmanager
def netem(kernel, *delays):
    environment = {"PATH": str(kernel), "HERE": str(kernel), "SLEEP": shutil.which("sleep")}
    process = subprocess.Popen(
        ["sh", SCRIPT, *delays], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def told(kernel):
    return (kernel / "told").read_text().splitlines()


def commands_for(*delays, device="eth7"):
    """A class of its own for each address, and one for all others, which is not delayed."""
    class_of = f"class add dev {device} parent 1: classid"
    rate = "htb rate 100gbit quantum 60000"
    lines = [
        f"qdisc del dev {device} root",
        f"qdisc add dev {device} root handle 1: htb default 1",
        f"{class_of} 1:1 {rate}",
    ]
    match = f"filter add dev {device} parent 1: protocol ip u32 match ip dst"
    for number, (address, delay_ms) in enumerate(delays, start=2):
        lines += [
            f"{class_of} 1:{number:x} {rate}",
            f"qdisc add dev {device} parent 1:{number:x} netem delay {delay_ms}ms limit 100000",
            f"{match} {address}/32 flowid 1:{number:x}",
        ]
    return lines


def test_each_neighbor_has_its_delay(kernel):
    """On the device that leads there. It ends at once when it is told to."""
    with netem(kernel, "node-b=35", "node-e=0.5") as process:
        said = process.stdout.readline()
        assert said == "netem: eth7 delays 10.0.0.2=35 10.0.0.5=0.5\n"
        assert told(kernel) == commands_for(("10.0.0.2", "35"), ("10.0.0.5", "0.5"))
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def test_more_neighbors_than_digits(kernel):
    """Classes are numbered as tc reads them, which is hexadecimal."""
    hosts = {f"node-{n}": f"10.0.0.{n}" for n in range(2, 14)}
    resolve(kernel, hosts)
    with netem(kernel, *(f"{host}=7" for host in hosts)) as process:
        assert process.stdout.readline()
        assert told(kernel) == commands_for(*((address, "7") for address in hosts.values()))


def test_a_neighbor_that_comes_back_at_another_address(kernel):
    """All is set anew then, and nothing as long as no address changes."""
    resolve(
        kernel,
        {"node-b": "10.0.0.2", "node-e": "10.0.0.5"},
        later={"node-b": "10.0.0.9", "node-e": "10.0.0.5"},
    )
    with netem(kernel, "node-b=35", "node-e=35") as process:
        assert process.stdout.readline() == "netem: eth7 delays 10.0.0.2=35 10.0.0.5=35\n"
        assert process.stdout.readline() == "netem: eth7 delays 10.0.0.9=35 10.0.0.5=35\n"
        first = commands_for(("10.0.0.2", "35"), ("10.0.0.5", "35"))
        assert told(kernel) == first + commands_for(("10.0.0.9", "35"), ("10.0.0.5", "35"))


def test_a_neighbor_that_is_not_there_yet(kernel):
    """The others are delayed meanwhile."""
    resolve(kernel, {"node-b": "10.0.0.2"}, later={"node-b": "10.0.0.2", "node-e": "10.0.0.9"})
    with netem(kernel, "node-e=9", "node-b=35") as process:
        assert process.stdout.readline() == "netem: eth7 delays 10.0.0.2=35\n"
        assert process.stdout.readline() == "netem: eth7 delays 10.0.0.9=9 10.0.0.2=35\n"


@pytest.mark.parametrize(
    ("lacking", "complaint"),
    [
        ("*netem*", "this kernel has no netem: modprobe sch_netem, or do without compose.netem"),
        ("*'htb default'*", "this kernel has no htb"),
    ],
)
def test_a_kernel_that_cannot(lacking, complaint, kernel):
    """It says so and ends, and leaves nothing half delayed."""
    put(kernel, "tc", f'echo "$*" >>"$HERE/told"\ncase "$*" in {lacking}) exit 2 ;; esac')
    with netem(kernel, "node-b=35") as process:
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (1, "")
    assert err.startswith(f"netem: {complaint}")
    if "netem" in lacking:
        assert told(kernel)[-1] == "qdisc del dev eth7 root"
