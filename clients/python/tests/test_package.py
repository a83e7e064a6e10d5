"""The package itself: its types, and that it needs nothing else."""

import ast
import os
import pathlib
import subprocess
import sys

import pegel
import pytest

FOLDER = pathlib.Path(pegel.__file__).parent


def test_everything_public_is_documented_and_typed():
    assert (FOLDER / "py.typed").exists()
    for name in pegel.__all__:
        assert getattr(pegel, name).__doc__, name
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = [one for one in node.args.args + node.args.kwonlyargs if one.arg not in ("self", "cls")]
                assert node.returns is not None, f"{path.name}: {node.name}"
                assert all(one.annotation for one in given), f"{path.name}: {node.name}"


def test_the_stubs_describe_the_native_module(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "pegel._native"],
        capture_output=True, text=True, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_passes_a_strict_type_check(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "-p", "pegel"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(FOLDER.parent)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_standard_library_is_imported():
    program = "import sys; before = set(sys.modules); import pegel; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names - {"pegel"} <= sys.stdlib_module_names
