"""`perdure worker start --metrics-port`: real workers, scraped over HTTP."""

import http.client
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from perdure import __version__
from tests.cli.conftest import Perdure, line_of, spawned
from tests.cli.test_worker import until
from tests.docs.pages import ROOT

START = ("worker", "start", "--app", "agents:app", "--log-format", "json")


@contextmanager
def served(*args: str) -> Iterator[tuple[Any, str]]:
    """A worker with metrics on any free port, and their address."""
    with spawned(*START, "--metrics-port", "0", *args) as worker:
        report = json.loads(line_of(worker.stderr))
        assert report["event"] == "metrics are served"
        assert json.loads(line_of(worker.stderr))["event"] == "worker started"
        yield worker, str(report["url"])


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request(method, parts.path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


def reaches(perdure: Perdure, id: str, *statuses: str) -> None:
    """Wait until the job is in one of these states."""
    until(lambda: perdure("jobs", "get", id, "--json").only["status"] in statuses)


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """All samples by name and label values, in the order of the labels' names."""
    return {
        (s.name, tuple(value for _, value in sorted(s.labels.items()))): s.value
        for family in parse_text(text)
        for s in family.samples
    }


def test_a_scrape_tells_what_the_worker_did_and_what_is_left(anywhere: Perdure) -> None:
    ended = [anywhere.start("greet", "--input", '"ann"') for _ in range(3)]
    ended += [anywhere.start("fails"), anywhere.start("dies")]
    ended += [anywhere.start("research", "--input", '{"topic": "x"}')]
    left = [anywhere.start("breaks"), anywhere.start("naps"), anywhere.start("asks", "--input", '"draft"')]
    anywhere.start("greet", "--input", '"later"', "--delay", "1h")
    anywhere.start("greet", "--input", '"far"', "--queue", "far")
    with served() as (worker, url):
        for id in ended:
            reaches(anywhere, id, "COMPLETED", "FAILED", "DEADLETTER")
        for id, status in zip(left, ("RETRY", "PARKED", "WAITING_FOR_APPROVAL"), strict=True):
            reaches(anywhere, id, status)
        code, type, text = get(url)
        assert (code, type.split(";")[0]) == (200, "text/plain")
        found = samples(text)
        finished = {labels: n for (name, labels), n in found.items() if name == "perdure_jobs_finished_total"}
        assert finished == {
            ("greet", "COMPLETED"): 3,
            ("research", "COMPLETED"): 1,
            ("fails", "FAILED"): 1,
            ("dies", "DEADLETTER"): 1,
        }
        assert {labels: n for (name, labels), n in found.items() if name == "perdure_jobs" and n} == {
            ("greet", "PENDING"): 2,
            ("breaks", "RETRY"): 1,
            ("naps", "PARKED"): 1,
            ("asks", "WAITING_FOR_APPROVAL"): 1,
        }
        assert found["perdure_jobs", ("greet", "RUNNING")] == 0
        assert found["perdure_job_retries_total", ("breaks", "app")] == 1
        assert found["perdure_steps_total", ("say", "completed")] == 3
        assert found["perdure_step_duration_seconds_count", ("say",)] == 3
        assert found["perdure_tokens_total", ("research",)] == 120
        assert found["perdure_cost_usd_total", ("research",)] == 0.5
        assert found["perdure_job_queue_wait_seconds_count", ("greet",)] == 3
        assert found["perdure_job_queue_wait_seconds_sum", ("greet",)] > 0
        assert found["perdure_job_duration_seconds_count", ("asks", "WAITING_FOR_APPROVAL")] == 1
        assert found["perdure_approvals_pending", ()] == 1
        assert found["perdure_oldest_pending_approval_age_seconds", ()] > 0
        assert found["perdure_oldest_ready_job_age_seconds", ("greet", "far")] > 0
        assert found["perdure_oldest_ready_job_age_seconds", ("greet", "default")] == 0
        assert found["perdure_workers", ("default", "RUNNING")] == 1
        assert ("perdure_workers", ("far", "RUNNING")) not in found
        assert found["perdure_worker_slots_max", ()] == 100
        assert found["perdure_worker_slots_used", ()] == 0
        assert found["perdure_lease_renewals_total", ("lost",)] == 0
        assert found["perdure_store_op_duration_seconds_count", ("finish",)] >= 5  # those that are not COMPLETED
        assert found["perdure_store_op_duration_seconds_count", ("finish_many",)] >= 1
        assert not [name for name, _ in found if name == "perdure_store_errors_total"]
        store = os.environ["PERDURE_DATABASE_URL"].partition(":")[0]
        assert found["perdure_build_info", (store, __version__)] == 1
        assert found["process_cpu_seconds_total", ()] > 0
        label_values = " ".join(value for _, labels in found for value in labels)
        assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}", label_values), "no ids"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == 0


def test_it_says_whether_it_lives_and_is_ready(anywhere: Perdure) -> None:
    id = anywhere.start("hangs")
    with served("--drain-timeout", "60s") as (worker, url):
        base = url.removesuffix("/metrics")
        assert get(f"{base}/healthz")[::2] == (200, "ok\n")
        assert get(f"{base}/readyz")[::2] == (200, "ok\n")
        reaches(anywhere, id, "RUNNING")
        worker.send_signal(signal.SIGTERM)
        until(lambda: get(f"{base}/readyz")[::2] == (503, "the worker claims no jobs\n"))
        assert get(f"{base}/healthz")[0] == 200, "it drains, and lives"
        assert get(url)[0] == 200
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == 143
        with pytest.raises(ConnectionRefusedError):
            get(url)


def test_what_else_may_be_asked(perdure: Perdure) -> None:
    with served() as (_, url):
        base = url.removesuffix("/metrics")
        assert base.startswith("http://127.0.0.1:"), "only this machine can connect"
        assert get(f"{base}/")[0] == 404
        assert get(url, "POST")[0] == 405
        status, type, body = get(url, "HEAD")
        assert (status, type.split(";")[0], body) == (200, "text/plain", "")
        assert get(f"{base}/readyz?verbose")[0] == 200
        status, type, body = get(url, Accept="application/openmetrics-text; version=1.0.0")
        assert (status, type.split(";")[0]) == (200, "application/openmetrics-text")
        families = parse_openmetrics(body)  # type: ignore[no-untyped-call]  # it has no types
        assert "perdure_jobs_finished" in {family.name for family in families}
        address = (urlsplit(url).hostname, urlsplit(url).port)
        for rubbish, answer in (
            (b"rubbish\r\n\r\n", b"HTTP/1.1 400 "),
            (b"\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET /metrics\r\n\r\n", b"HTTP/1.1 400 "),
            (b"\xff\xfe\x00 \x00 \x00\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET /healthz HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
            (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"HTTP/1.1 431 "),
            (b"GET / HTTP/1.1\r\n", b""),
        ):
            with socket.create_connection(address, timeout=30) as client:
                client.sendall(rubbish)
                client.shutdown(socket.SHUT_WR)
                assert client.recv(100).startswith(answer), rubbish[:40]
        silent = [socket.create_connection(address, timeout=30) for _ in range(20)]
        assert get(f"{base}/healthz")[0] == 200, "a client that sends nothing does not keep others waiting"
        for client in silent:
            client.close()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_is_taken(perdure: Perdure, place: Path, taken: int) -> None:
    for more in ((), ("--processes", "2")):
        done = perdure(*START, "--metrics-port", str(taken), *more, code=2)
        assert f"metrics cannot be served on 127.0.0.1:{taken}: Address already in use" in done.err
        assert "perdure help port-taken" in done.err
        assert "--metrics-port" in done.err
    assert not list(place.glob("perdure.db*")), "nothing was made"


def test_a_port_that_one_of_several_processes_would_need(perdure: Perdure, place: Path, taken: int) -> None:
    done = perdure(*START, "--metrics-port", str(taken - 1), "--processes", "2", code=2)
    assert re.search(f"127.0.0.1:({taken}|{taken - 1}): Address already in use", done.err)
    assert not list(place.glob("perdure.db*"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--metrics-port", "70000"), "metrics_port (flag) is invalid: must be between 0"),
        (("--metrics-port", "http"), "metrics_port (flag) is invalid: 'http' is no whole number"),
        (("--metrics-port", "65535", "--processes", "2"), "metrics cannot be served on port 65536"),
        (("--metrics-port", "0", "--metrics-host", "no such host"), "metrics_host no such host is not an address"),
        (
            ("--metrics-port", "0", "--metrics-host", "192.0.2.1"),
            "metrics cannot be served on 192.0.2.1: this machine has no such address",
        ),
        (("--log-format", "xml"), "log_format (flag) is invalid: must be one of text, json"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_what_makes_no_sense(perdure: Perdure, args: tuple[str, ...], says: str) -> None:
    said = perdure("worker", "start", "--app", "agents:app", *args, code=2).err
    assert says in said
    assert "[perdure help malformed-setting]" in said


def test_without_the_extra(perdure: Perdure, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("metrics", "serving", "snapshot"):
        monkeypatch.delitem(sys.modules, f"perdure.observe.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = perdure(*START, "--metrics-port", "0", code=2)
    assert "metrics need the package prometheus_client, which is not installed" in done.err
    assert "pip install 'perdure[metrics]'" in done.err
    assert "perdure help extra-missing" in done.err
    assert not list(place.glob("perdure.db*"))


def test_several_processes_have_a_port_each(perdure: Perdure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the port comes from the environment, which all of them inherit."""
    port = two_free_ports()
    monkeypatch.setenv("PERDURE_METRICS_PORT", str(port))
    with spawned(*START, "--processes", "2") as workers:
        until(lambda: up(port) and up(port + 1), 40)
        for id in [perdure.start("greet", "--input", '"ann"') for _ in range(10)]:
            reaches(perdure, id, "COMPLETED")
        done = [samples(get(f"http://127.0.0.1:{p}/metrics")[2]) for p in (port, port + 1)]
        finished = ("perdure_jobs_finished_total", ("greet", "COMPLETED"))
        assert sum(found.get(finished, 0) for found in done) == 10
        workers.send_signal(signal.SIGTERM)
        assert workers.wait(timeout=30) == 0


def up(port: int) -> bool:
    try:
        return get(f"http://127.0.0.1:{port}/readyz")[0] == 200
    except OSError:
        return False


def two_free_ports() -> int:
    """The first of two ports side by side that are free at this moment."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


def test_the_alerts_ask_for_metrics_that_exist(perdure: Perdure) -> None:
    with served() as (_, url):
        text = get(url)[2]
    exist = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    asked = set(re.findall(r"\bperdure_\w+", (ROOT / "docs" / "alerts.yml").read_text()))
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
    assert len(bare) >= 5
    assert bare <= exist


def test_every_metric_is_documented(perdure: Perdure) -> None:
    with served() as (_, url):
        text = get(url)[2]
    page = (ROOT / "docs" / "observability.md").read_text()
    exist = set(re.findall(r"^# TYPE (perdure_\w+)", text, re.MULTILINE))
    assert {name for name in exist if f"`{name}`" not in page and not name.endswith("_created")} == set()
