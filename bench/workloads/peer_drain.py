"""A drain of perdure and of Graphile Worker, one after the other in the same round, with one worker process and with two."""

from bench.meter import cpu_figures
from bench.peers import graphile
from bench.processes import Drained
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, Workload
from bench.workloads.drain import drain_processes


def drain_with_graphile(number: int) -> Workload:
    """The same number of jobs that do nothing, with the same payload, by so many worker processes of each."""
    name = f"graphile_{number}"

    async def run(target: Target, sizes: Sizes) -> Figures:
        jobs = sizes.peer_jobs
        command = await graphile.install()  # raises LeftOut before anything is measured
        ours = await drain_processes(target, jobs, number, "discard")
        theirs = await graphile.drain(target, command, jobs, number)
        figures = _figures(f"{name}.perdure", jobs, ours) | _figures(f"{name}.graphile", jobs, theirs)
        if ours.server is not None and theirs.server is not None:
            cpu = (ours.client + ours.server) / (theirs.client + theirs.server)
            figures[f"{name}.cpu perdure/graphile"] = cpu
        figures[f"{name}.rate perdure/graphile"] = theirs.seconds / ours.seconds
        return figures

    return run


def _figures(name: str, jobs: int, drained: Drained) -> Figures:
    return {**cpu_figures(f"{name}_", drained.client, drained.server, jobs), name: jobs / drained.seconds}
