"""What only the source of perdure says: the attributes that a class declares, and the text below constants and aliases."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any


@functools.cache
def attributes_of(value: type) -> tuple[tuple[str, str, str], ...]:
    """The public attributes that the source of a class declares, in its body or in __init__: name, type, what follows as text."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError):
        return ()
    found = []
    bodies = [getattr(tree, "body", [])]
    bodies += [node.body for node in bodies[0] if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    for body in bodies:
        for node, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign | ast.Assign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Attribute):
                name = target.attr
            elif isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign):
                name = target.id
            else:
                continue
            if name.startswith("_") or (name == "code" and issubclass(value, BaseException)):
                continue
            if isinstance(node, ast.AnnAssign):
                annotation = ast.unparse(node.annotation)
                if isinstance(node.value, ast.Constant) and isinstance(target, ast.Name):
                    annotation += f" = {node.value.value!r}"
            else:
                annotation = _parameter_type(tree, node)
            says = following.value.value if _is_text(following) else ""
            found.append((name, annotation, says))
    return tuple(found)


def _parameter_type(tree: Any, node: ast.Assign) -> str:
    """`self.job = job`: the type of the parameter."""
    if isinstance(node.value, ast.Name):
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                arguments = function.args
                for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                    if argument.arg == node.value.id and argument.annotation is not None:
                        return ast.unparse(argument.annotation)
    return ""


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _assignments() -> Iterator[tuple[str, Any, Any]]:
    """The constants and aliases of all modules that are loaded: name, value, what follows; as syntax trees."""
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("perdure.")]:
        body = ast.parse(inspect.getsource(module)).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign | ast.Assign):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name):
                    yield target.id, node.value, following


@functools.cache
def described_values() -> dict[str, str]:
    """What the text below a constant or an alias says of it, by name."""
    return {name: following.value.value for name, _, following in _assignments() if _is_text(following)}


@functools.cache
def alias_definitions() -> dict[str, str]:
    """What an alias stands for."""
    return {name: ast.unparse(value) for name, value, following in _assignments() if _is_text(following)}
