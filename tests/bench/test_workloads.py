"""Every workload that `make bench` runs, at a size that takes a moment; each checks what it left in the database."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench import server_cost
from bench.__main__ import chosen, measure
from bench.bars import BARS
from bench.checks import LeftOut
from bench.peers.install import cache, command, installed
from bench.report import Results, lines, table
from bench.targets import PostgresTarget, SqliteTarget, Target
from bench.workloads import POSTGRES_ONLY, WORKLOADS
from bench.workloads.common import Figures, Sizes
from tests.postgres_server import PostgresServer

TINY = Sizes(jobs=300, peer_jobs=300, seconds=1.2, scale=0.0001, samples=5, part=0.02)
ONLY_A_NUMBER = {"drain_4", "steps_1", "steps_128", "short_steps_1", "short_steps_8", "pickup_1", "pickup_1000"}
"""Workloads that differ from one that is tested (drain_2, steps_32, short_steps_32, pickup_100) by a number alone."""
CPU_FIRST = ("drain", "drain_2", "drain_4", "enqueue_bulk")


@pytest.fixture
def postgres_target(postgres: PostgresServer) -> Iterator[PostgresTarget]:
    with PostgresTarget(postgres.url()) as target:
        yield target


def one_of_each(store: str) -> list[str]:
    left_out = ONLY_A_NUMBER | (POSTGRES_ONLY if store == "postgres" else set())
    return [name for name in chosen(store) if name not in left_out]


def check_figures(store: str, name: str, figures: Figures) -> None:
    known = {bar.figure for bar in BARS[store]}
    assert [figure for figure in figures if figure in known], "the table has a line for it"
    assert all(value >= 0 for value in figures.values())
    if name in CPU_FIRST or "steps_" in name:
        parts = [f"{name}.{part}" for part in ("cpu_us", "client_us", "server_us")]
        results = Results(store, "", {figure: [value] for figure, value in figures.items()})
        assert [line.figure for line in lines(results)][:4] == [*parts, name]
        total, client, server = (figures[part] for part in parts)
        assert client > 0
        assert total == pytest.approx(client + server)


@pytest.mark.parametrize("name", one_of_each("sqlite"))
async def test_workload_on_sqlite(name: str) -> None:
    with SqliteTarget() as target:
        check_figures("sqlite", name, await WORKLOADS[name](target, TINY))


@pytest.mark.parametrize("name", one_of_each("postgres"))
async def test_workload_on_postgres(postgres_target: Target, name: str) -> None:
    check_figures("postgres", name, await WORKLOADS[name](postgres_target, TINY))


async def test_the_parts_of_the_servers_cost(postgres_target: PostgresTarget) -> None:
    """Each part can be taken out, and jobs go through all the same."""
    figures = await server_cost.measure(postgres_target, 2000, 1, apart=True)
    assert [*figures] == ["everything", *server_cost.APART]
    assert all(value > 0 for value in figures["everything"].values())
    assert all(us > 0 for us in (await server_cost.statements(postgres_target, 5)).values())


@pytest.mark.skipif(
    not any(cache().glob("graphile-*/installed")), reason="make bench installs Graphile Worker, tests do not"
)
async def test_comparison_with_graphile_worker(postgres_target: Target) -> None:
    figures = await WORKLOADS["graphile_2"](postgres_target, TINY)
    assert figures["graphile_2.graphile_cpu_us"] > 0
    check_figures("postgres", "graphile_2", figures)


async def test_comparison_with_graphile_worker_is_left_out_without_node(
    postgres_target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    results = await measure(postgres_target, ["graphile_1"], 2, TINY)
    assert results.wrong == []
    assert results.product == {}
    assert table(results).endswith(
        "left out: graphile_1: the comparison with Graphile Worker needs node and npm on PATH"
    )


async def test_a_failed_installation_leaves_the_comparison_out_and_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_BENCH_CACHE", str(tmp_path))

    async def fail(folder: Path, packages: Sequence[str]) -> None:
        await command("false")

    async def succeed(folder: Path, packages: Sequence[str]) -> None:
        (folder / "program").touch()

    with pytest.raises(LeftOut, match="false failed"):
        await installed("peer", ["one"], fail)
    folder = await installed("peer", ["one"], succeed)
    assert folder.parent == tmp_path
    assert (folder / "program").exists()
    assert await installed("peer", ["one"], fail) == folder  # at the second use nothing is installed
    assert await installed("peer", ["two"], succeed) != folder
