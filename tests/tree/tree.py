"""What the checks of the tree share. Each check is a script: `check.py ROOT` prints what is wrong and exits with 1.

Every script first runs its own function on texts that break the rule, so that a check that can no longer fail fails.
"""
import pathlib
import re
import sys

LIBRARY = ("tensor", "autograd", "nn", "optim", "amp", "data", "cuda")

# Strings are matched too, so that `//` inside one starts no comment; a group keeps them.
_COMMENT = re.compile(
    r"""(R"(?P<tag>[^\s()\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\[^\n']+|[^'\\\n])')|//[^\n]*|/\*.*?\*/""",
    re.DOTALL)


def files(root):
    """Paths of the repository's files relative to root, without build folders and what tools leave behind."""
    root = pathlib.Path(root)
    pending = [root]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                if path.name not in (".git", "__pycache__") and not (path / "meson-private").exists():
                    pending.append(path)
            elif path.is_file() and path.name != ".git":
                yield path.relative_to(root)


def sources(root, suffixes=(".h", ".cpp", ".def", ".cuh", ".cu")):
    """{path: text} of the C++ files."""
    return {path.as_posix(): (root / path).read_text() for path in files(root) if path.suffix in suffixes}


def without_comments(text):
    return _COMMENT.sub(lambda match: match[1] or "\n" * match[0].count("\n"), text)


def report(problems):
    """Prints the problems and ends the script."""
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def root():
    return pathlib.Path(sys.argv[1])
