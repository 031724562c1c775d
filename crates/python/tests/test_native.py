"""What the stub file says of the native half is true, name by name."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import kvferry
from kvferry import _kvferry as native

STUB = ast.parse(Path(native.__file__).with_name("_kvferry.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def stated(function: ast.FunctionDef) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter."""
    args = function.args
    empty = inspect.Parameter.empty
    plain = [one.arg for one in args.args if one.arg != "self"]
    defaults = [empty] * (len(plain) - len(args.defaults)) + [_value(one) for one in args.defaults]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = [(name, kind, default) for name, default in zip(plain, defaults)]
    for one, default in zip(args.kwonlyargs, args.kw_defaults):
        value = empty if default is None else _value(default)
        found.append((one.arg, inspect.Parameter.KEYWORD_ONLY, value))
    return found


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(node)


def actual(function: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters if one.name != "self"]


def test_the_same_names() -> None:
    has = {name for name in vars(native) if not name.startswith("__")} - {"log_to_stderr"}
    assert has == (set(CLASSES) | set(FUNCTIONS)) - {"log_to_stderr"}
    assert set(kvferry.__all__) == set(CLASSES) | set(FUNCTIONS) | {"__version__", "memory_of"}
    assert all(hasattr(kvferry, name) for name in kvferry.__all__)


def test_functions_have_the_same_parameters() -> None:
    for name, function in FUNCTIONS.items():
        assert actual(getattr(native, name)) == stated(function), name


def test_classes_have_the_same_members() -> None:
    for name, node in CLASSES.items():
        kind = getattr(native, name)
        if issubclass(kind, Exception):
            assert [base.id for base in node.bases] == [base.__name__ for base in kind.__bases__]
            continue
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}
        made = methods.pop("__init__", None)
        if made is not None:
            assert actual(kind) == stated(made), name
        public = {one for one in vars(kind) if not one.startswith("_")}
        assert public == {one for one in methods if not one.startswith("_")} | fields, name
        for method, function in methods.items():
            if not function.decorator_list:
                assert actual(getattr(kind, method)) == stated(function), (name, method)
        data = {one for one in public if inspect.isdatadescriptor(getattr(kind, one))}
        assert data == fields | {one for one, what in methods.items() if what.decorator_list}, name


def test_what_cannot_be_made_is_not_made() -> None:
    for name in CLASSES:
        kind = getattr(native, name)
        has_init = any(getattr(one, "name", "") == "__init__" for one in CLASSES[name].body)
        if not has_init and not issubclass(kind, Exception):
            try:
                kind()
            except TypeError:
                continue
            raise AssertionError(name)


def test_everything_public_says_what_it_is_for() -> None:
    for name in kvferry.__all__:
        if name != "__version__":
            assert (getattr(kvferry, name).__doc__ or "").strip(), name


def test_it_needs_nothing_else() -> None:
    """Neither torch nor vLLM nor numpy, and no network library of theirs."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['torch', 'vllm', 'numpy', 'prometheus_client']))\n"
        "import kvferry\n"
        "assert 'kvferry.vllm' not in sys.modules\n"
        "print(kvferry.__version__, kvferry.random_u64() != kvferry.random_u64())\n"
    )
    package = str(Path(kvferry.__file__).parent.parent)
    # Without what this process has on its path.
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {package!r})\n{code}"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [kvferry.__version__, "True"]
