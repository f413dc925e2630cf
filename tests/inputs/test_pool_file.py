"""Pool files: what is read, and the one line that tells what is wrong with one."""

import pytest

from spillover.inputs.pool_file import load_pool
from spillover.model.errors import InputError

GOOD = """\
servers: [{id: s1, rate: 1}, {id: 2, rate: 4.5}]
classes: [{id: both, servers: [s1, 2], tokens: 6}]
types: [{id: 1, rate: 0.5, classes: [both]}]
"""


def read(tmp_path, text):
    file = tmp_path / "rack.yaml"
    file.write_text(text, encoding="utf-8")
    return load_pool(str(file))


def test_a_file_is_read(tmp_path):
    """Ids may be whole numbers, rates too; without a name it is called after the file."""
    pool = read(tmp_path, GOOD)
    assert pool.name == "rack"
    assert [(each.id, each.rate) for each in pool.servers] == [("s1", 1.0), ("2", 4.5)]
    assert [(each.id, each.servers, each.tokens) for each in pool.classes] == [
        ("both", ("s1", "2"), 6)
    ]
    assert [(each.id, each.rate, each.classes) for each in pool.types] == [("1", 0.5, ("both",))]
    assert read(tmp_path, GOOD + "name: mine\n").name == "mine"


def test_the_pool_of_figure_8():
    """Ten servers, five of them four times as fast; one type for all; six tokens each."""
    pool = load_pool("comte8")
    assert [each.rate for each in pool.servers] == [1.0] * 5 + [4.0] * 5
    assert [each.servers for each in pool.classes] == [(each.id,) for each in pool.servers]
    assert {each.tokens for each in pool.classes} == {6}
    assert [each.classes for each in pool.types] == [tuple(each.id for each in pool.classes)]
    assert pool.load == 1


def test_the_pool_of_figure_11():
    """Six equal servers; type 1 for the first four, type 2, four times as many, for the last."""
    pool = load_pool("comte11")
    assert [each.rate for each in pool.servers] == [1.0] * 6
    assert [each.servers for each in pool.classes] == [(each.id,) for each in pool.servers]
    assert {each.tokens for each in pool.classes} == {6}
    ids = tuple(each.id for each in pool.classes)
    assert [(each.rate, each.classes) for each in pool.types] == [(1.0, ids[:4]), (4.0, ids[2:])]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected a mapping of fields, got nothing"),
        ("a: 1\na: 2\n", "line 2: expected each field once, got 'a' twice"),
        (GOOD + "7: []\n", "[7]: expected a field name, got 7"),
        ("servers: []\nclasses: []\n", "types: expected a value, the field is missing"),
        (
            GOOD.replace("[{id: 1,", "{id: 1,").replace("[both]}]", "[both]}"),
            "types: expected a list",
        ),
        (
            GOOD.replace("rate: 1}", "rates: 1}"),
            "servers[0].rates: unknown field, did you mean rate?",
        ),
        (GOOD.replace("rate: 1}", "rate: true}"), "servers[0].rate: expected a number, got true"),
        (GOOD.replace("rate: 1}", "rate: .nan}"), "servers[0].rate: expected a finite number"),
        (GOOD.replace("id: s1,", "id: [],"), "servers[0].id: expected an id, got a list"),
        (GOOD.replace("[s1, 2]", "s1"), "classes[0].servers: expected a list of ids, got 's1'"),
        (
            GOOD.replace("[s1, 2]", "[s1, s3]"),
            "classes[0].servers: expected ids of servers (2, s1), got 's3'",
        ),
        (GOOD.replace("tokens: 6", "tokens: 1.5"), "classes[0].tokens: expected a whole number"),
        (
            GOOD.replace("[both]", "[all]"),
            "types[0].classes: expected ids of classes (both), got 'all'",
        ),
    ],
)
def test_faults_of_a_file(text, complaint, tmp_path):
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'rack.yaml'}: {complaint}")
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"nope: expected a built-in pool \(comte8, comte11\) or"):
        load_pool("nope")
    with pytest.raises(InputError, match="expected a file, got a directory"):
        load_pool(str(tmp_path))
    file = tmp_path / "pool.yaml"
    file.write_bytes(b"servers: \xff")
    with pytest.raises(InputError, match="expected UTF-8 text, got byte 0xff at 9"):
        load_pool(str(file))
    file.write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(InputError, match="expected at most 1048576 bytes, got more"):
        load_pool(str(file))
