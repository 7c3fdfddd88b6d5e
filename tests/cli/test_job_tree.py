"""`perdure jobs tree`."""

import json
from datetime import UTC, datetime
from uuid import UUID

from perdure import Status
from perdure.cli.job_tree import below
from perdure.model.children import TreeNode
from tests.cli.conftest import Perdure


def node(number: int, parent: int | None, depth: int) -> TreeNode:
    above = None if parent is None else UUID(int=parent)
    return TreeNode(UUID(int=number), above, depth, "k", None, Status.PENDING, datetime.now(UTC), None, None)


def test_each_job_stands_below_its_parent() -> None:
    level_by_level = [node(1, 99, 0), node(2, 1, 1), node(3, 1, 1), node(4, 2, 2), node(5, 3, 2), node(6, 2, 2)]
    assert [n.id.int for n in below(level_by_level)] == [1, 2, 4, 6, 3, 5]
    assert [*below([])] == []


def test_a_job_without_children_is_a_tree(perdure: Perdure) -> None:
    id = perdure("jobs", "start", "greet", "--input", '"ann"', "-o", "id").out.strip()
    [item] = json.loads(perdure("jobs", "tree", id, "--json").out)["items"]
    assert (item["id"], item["depth"], item["status"]) == (id, 0, "PENDING")
    assert "greet" in perdure("jobs", "tree", id).out
