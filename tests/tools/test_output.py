"""Output: secrets are replaced, memory is bounded, and every store takes what is kept."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.model.errors import SecretMissing
from perdure.model.tooling import Account, RunClass, TaskSpec
from perdure.tools import CliSettings
from perdure.tools.capture import Capture, Lines
from perdure.tools.secrets import MASK, Masker
from tests.tools.conftest import Bench
from tests.tools.scripts import tool

ACCOUNT = Account(id="a", tool="script")
TASK = TaskSpec(tool="script", prompt="p", timeout=60.0)
SECRETS = ("sk-abcdef-123456", 'quoted"secret\\', "abcabcabd")


@pytest.fixture
def place(tmp_path: Path) -> Bench:
    return Bench(tmp_path, CliSettings(level="L0", captured_bytes=1000))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # other tests may use the processors
@given(
    st.lists(
        st.one_of(
            st.sampled_from(SECRETS), st.sampled_from([s[:-2] for s in SECRETS]), st.text("abc sk-\n", max_size=6)
        )
    ),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_secrets_are_replaced_however_the_stream_is_cut(words: list[str], cuts: list[int]) -> None:
    masker = Masker(SECRETS)
    data = "".join(words).encode()
    stream, out, at, turn = masker.stream(), b"", 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        out, at, turn = out + stream.feed(data[at : at + size]), at + size, turn + 1
    out += stream.end()
    assert not any(secret.encode() in out for secret in SECRETS)
    assert out.replace(MASK, b"") in data or MASK in out
    if not any(secret.encode() in data for secret in SECRETS):
        assert out == data


def test_a_secret_is_found_in_json() -> None:
    assert Masker(SECRETS).mask(json.dumps({"x": SECRETS[1]}).encode()) == b'{"x": "[secret]"}'
    assert Masker(["short"]).mask(b"short") == b"short"


async def test_a_program_that_prints_its_secrets(place: Bench) -> None:
    key = place.folder / "key"
    key.write_text("sk-from-a-file-1234\n")
    credential = place.folder / "credential"
    credential.write_text(json.dumps({"tokens": {"access": "eyJ-access-token-1", "kind": "oauth"}}))
    code = """
    import json, os, sys, time
    values = [os.environ["A_KEY"], os.environ["B"], open(os.environ["HOME"] + "/.secret/auth.json").read()]
    print(json.dumps(values))
    print(*values, file=sys.stderr)
    for piece in values[0]:
        sys.stdout.write(piece)
        sys.stdout.flush()
        time.sleep(0.01)
    """
    place.adapters = tool(place.folder, code, credential=".secret/auth.json")
    account = replace(ACCOUNT, env={"A_KEY": "env:THE_KEY", "B": f"file:{key}"}, cred_ref=str(credential))
    run = await place.run(TASK, account, environ={"THE_KEY": "sk-from-the-worker-1"})
    assert run.outcome is RunClass.OK
    everything = repr(run) + repr(place.starts) + repr(place.output)
    for secret in ("sk-from-the-worker-1", "sk-from-a-file-1234", "eyJ-access-token-1"):
        assert secret not in everything
    assert run.stdout.text.count("[secret]") == 4
    assert not run.credential_changed
    assert (place.home / ".secret" / "auth.json").stat().st_mode & 0o777 == 0o400


async def test_a_task_refers_to_variables_of_the_worker_that_are_for_tasks(place: Bench) -> None:
    code = "import os; print(os.environ['API_TOKEN'], os.environ['STAGE'])"
    place.adapters = tool(place.folder, code)
    task = replace(TASK, env={"API_TOKEN": "env:TASK_TOKEN", "STAGE": "test"})
    environ = {"TASK_TOKEN": "tok-0123456789"}
    with pytest.raises(SecretMissing, match="refers to TASK_TOKEN, which this worker does not let tasks have"):
        await place.run(task, ACCOUNT, environ=environ)
    place.settings = replace(place.settings, task_env=("TASK_TOKEN",))
    with pytest.raises(SecretMissing, match="has no variable TASK_TOKEN"):
        await place.run(task, ACCOUNT, environ={})
    assert place.starts == []
    run = await place.run(task, ACCOUNT, environ=environ)
    assert run.final_text == "[secret] test"


async def test_a_program_that_writes_to_its_credential(place: Bench) -> None:
    credential = place.folder / "auth.json"
    credential.write_text("{}")
    code = "import os; p = os.environ['HOME'] + '/.secret/auth.json'; os.unlink(p); open(p, 'w').write('{1}'); print(1)"
    place.adapters = tool(place.folder, code, credential=".secret/auth.json")
    run = await place.run(TASK, replace(ACCOUNT, cred_ref=str(place.folder)))
    assert run.credential_changed
    assert credential.read_text() == "{}"


@pytest.mark.parametrize(
    ("account", "says"),
    [
        (replace(ACCOUNT, env={"A_KEY": "env:NOT_SET"}), "no variable NOT_SET"),
        (replace(ACCOUNT, env={"A_KEY": "file:/nowhere/key"}), "/nowhere/key cannot be read: No such file"),
        (replace(ACCOUNT, cred_ref="/nowhere"), "no auth.json at its cred_ref"),
    ],
    ids=["variable", "file", "credential"],
)
async def test_a_secret_that_is_missing(place: Bench, account: Account, says: str) -> None:
    place.adapters = tool(place.folder, "print(1)", credential=".secret/auth.json")
    with pytest.raises(SecretMissing, match=says):
        await place.run(TASK, account, environ={})
    assert place.starts == []


async def test_a_gibibyte_of_output(place: Bench) -> None:
    """Half of it is one line, which a reader of lines must not keep."""
    code = """
    import sys
    piece = b"x" * (1 << 20)
    for _ in range(512):
        sys.stdout.buffer.write(piece)
    line = (b"y" * 1023 + b"\\n") * 1024
    for _ in range(512):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.write(b"the end\\n")
    """
    place.adapters = tool(place.folder, code)
    received = 0

    async def count(data: bytes) -> None:
        nonlocal received
        received += len(data)
        place.output["stdout"].clear()

    place.on_output = count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = await place.run(TASK, ACCOUNT)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert received == run.stdout.size == (1 << 30) + 8
    assert run.stdout.head == "x" * 1000
    assert run.stdout.tail.endswith("y\nthe end\n")
    assert len(run.stdout.tail) == 1000
    assert (after - before) // 1024 < 100  # MiB


async def test_what_no_store_takes_is_replaced(place: Bench) -> None:
    code = r"""
    import sys
    sys.stdout.buffer.write(b'{"type":"system","session_id":"a\\u0000b"}\n')
    result = b'{"type":"result","is_error":false,"result":"nul \\u0000 lone \\ud800 \\u001b[2J","usage":{}}\n'
    sys.stdout.buffer.write(result + b"\x00\xff\x1b[2J\n")
    """
    place.adapters = tool(place.folder, code, output="claude")
    run = await place.run(TASK, ACCOUNT)
    assert run.outcome is RunClass.OK
    assert run.final_text == "nul \ufffd lone ? \x1b[2J"
    assert run.session_id is None
    assert run.stdout.text.endswith("\ufffd\ufffd\x1b[2J\n")
    run.stdout.text.encode()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # other tests may use the processors
@given(st.lists(st.binary(max_size=30)), st.integers(1, 40))
def test_head_and_tail(pieces: list[bytes], size: int) -> None:
    capture, data = Capture(size), b"".join(pieces)
    for piece in pieces:
        capture.feed(piece)
    kept = capture.result()
    assert kept.size == len(data)
    assert kept.head == data[:size].decode(errors="replace").replace("\0", "\ufffd")
    rest = data[size:]
    assert kept.tail == rest[-size:].decode(errors="replace").replace("\0", "\ufffd")


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # other tests may use the processors
@given(st.lists(st.text("ab\n", max_size=12)))
def test_lines(pieces: list[str]) -> None:
    lines = Lines(longest=5)
    found: list[str] = []
    for piece in pieces:
        found += lines.feed(piece.encode())
    found += lines.end()
    assert found == [line for line in "".join(pieces).split("\n") if 0 < len(line) <= 5]
