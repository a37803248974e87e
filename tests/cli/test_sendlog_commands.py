"""`headgate sendlog` and `headgate why`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from headgate.cli import main

LINKS = "At a, link(a,b). link(a,c).\nAt b, link(b,c).\n"


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


@pytest.fixture
def links(tmp_path: Path) -> str:
    path = tmp_path / "links.snd"
    path.write_text(LINKS)
    return str(path)


def test_a_program_is_checked_and_counted(links: str) -> None:
    result = typed("sendlog", "check", "reachability", links)
    assert (result.exit_code, result.output) == (0, "4 rules and 3 facts are in order\n")


def test_an_error_names_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "wrong.snd"
    path.write_text("At N,\np(X) :- q(Y).\n")
    result = typed("sendlog", "check", str(path))
    assert result.exit_code == 1
    problem = "rule `rule1` is unsafe: `X` has no value, for no predicate of the body gives it a value"
    assert result.output == f"error: {path}:2:3: {problem}\n"


def test_statements_can_be_printed(links: str) -> None:
    result = typed("sendlog", "run", "reachability", links, "--table", "says linkD", "--scheme", "hmac", "--at", "c")
    assert result.output.splitlines()[2:] == [
        "c   says linkD  a, a, c",
        "c   says linkD  b, b, c",
        "b   says linkD  a, a, b",
    ]


def test_a_program_without_principals_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.snd"
    path.write_text("p(X) :- q(X).\n")
    result = typed("sendlog", "run", str(path))
    assert result.output == (
        "error: no principal runs this program (write `At NAME, ...` for its facts, or name one with --at)\n"
    )


def test_a_derivation_is_printed_as_json(links: str) -> None:
    found = json.loads(typed("why", "reachability", links, "--at", "a", "--as", "json", "reachable(a, c)").output)
    assert found["expression"] == "a + a*b"
    assert [use["rule"] for use in found["derivations"]] == ["s1", "s4"]
    assert found["derivations"][1]["from"][0]["verified"] is True


def test_a_derivation_is_drawn_as_svg(links: str) -> None:
    output = typed("why", "reachability", links, "--at", "a", "--as", "svg", "reachable(a, c)").output
    drawn = ElementTree.fromstring(output)  # noqa: S314 - our own drawing
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a: reachable(a, c)" in texts and "s4" in texts


def test_what_is_not_there_is_not_explained(links: str) -> None:
    result = typed("why", "reachability", links, "--at", "a", "reachable(a, z)")
    assert (result.exit_code, result.output) == (1, "error: cannot explain `reachable(a, z)`: `a` does not hold it\n")
    result = typed("why", "reachability", links, "--at", "a", "reachable(a, Z)")
    assert result.output == "error: <fact>:1:1: `reachable` is no fact: its arguments are not all constants\n"


def test_strands_are_explained() -> None:
    output = typed("sendlog", "explain", "reachability").output
    assert "strand s3a@S\n  Network-In\n  SigChecker the node's level\n  Delta Z says linkD(Z, S)\n" in output
    assert "  SigGenerator the node's level\n  LocSpecDemux Z\n  Network-Out\n" in output


@pytest.mark.long
def test_a_program_gives_the_same_tables_on_spark(links: str) -> None:
    words = ("sendlog", "run", "reachability", links, "--at", "c", "--table", "reachable", "--table", "says linkD")
    assert typed(*words, "--spark").output == typed(*words).output


def test_a_key_is_its_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "acme.key"
    result = typed("sendlog", "key", str(file))
    assert result.exit_code == 0 and result.output.startswith("ssh-ed25519 ")
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    assert typed("sendlog", "key", str(file)).exit_code == 1
    assert file.read_bytes() == before
    assert before.decode() not in result.output


def test_signing_needs_a_key_and_facts(tmp_path: Path) -> None:
    file = tmp_path / "acme.key"
    file.write_text("nothing")
    to = ("--as", "acme", "--to", "0" * 32)
    result = typed("sendlog", "sign", "--key", str(file), *to, "employee(bob)")
    assert result.output == "error: this is not a private key (make one with `headgate sendlog key`)\n"
    result = typed("sendlog", "sign", "--key", str(file), *to, "employee(X)")
    assert (result.exit_code, result.output.startswith("error: <fact>:1:")) == (1, True)


def test_a_proof_or_a_program_is_named() -> None:
    result = typed("why")
    assert result.exit_code == 2
    assert "name programs, --at a principal and a fact, or a --proof" in result.output
