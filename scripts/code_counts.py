"""Count modules, lines, imports and docstrings of the installed packages: `python -m scripts.code_counts [ROOT]`."""

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

PACKAGES = ("front", "kernels", "render", "worlds", "server", "client", "fleet", "profiler", "demo", "protos")
SHORT_LINES = 60
ODD_DOCSTRING = re.compile(r"(What|Whether|Where|Who|Whose|Whom|Which|Whatever|Whoever|How|Those|Of|That)\b")
"""First words of docstrings that cannot be understood without the code below them."""


def source_files(root: Path, packages: tuple[str, ...] = PACKAGES) -> list[Path]:
    """Return the Python files of these packages, generated code excluded."""
    return sorted(path for package in packages for path in (root / package).rglob("*.py") if "_pb2" not in path.name)


def imported_modules(tree: ast.Module) -> set[str]:
    """Return the names of modules of worldloom that a module may import, by any form of the statement."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith("worldloom")}


def docstrings(tree: ast.Module) -> list[str]:
    """Return all docstrings of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in found if text]


def count(root: Path) -> dict[str, int]:
    """Count everything below a folder."""
    trees = {path: ast.parse(path.read_text()) for path in source_files(root)}
    modules = [path for path in trees if path.name != "__init__.py"]
    imported = Counter(name for tree in trees.values() for name in imported_modules(tree))
    names = {path: "worldloom." + ".".join(path.relative_to(root).with_suffix("").parts) for path in modules}
    lengths = {path: len(path.read_text().splitlines()) for path in modules}
    texts = [text for tree in trees.values() for text in docstrings(tree)]
    return {
        "modules": len(modules),
        "lines": sum(lengths.values()),
        f"modules of {SHORT_LINES} lines or fewer": sum(length <= SHORT_LINES for length in lengths.values()),
        "modules imported exactly once": sum(imported[name] == 1 for name in names.values()),
        "longest module": max(lengths.values()),
        "docstrings": len(texts),
        "docstrings that do not stand alone": sum(bool(ODD_DOCSTRING.match(text)) for text in texts),
    }


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    for name, number in count(parser.parse_args().root).items():
        print(f"{number:8,}  {name}")


if __name__ == "__main__":
    main()
