"""Source lists are written out by hand, so a forgotten file would silently not be built: each .cpp file is named in
the meson.build of its folder or of one above it."""
import pathlib
import re

import tree


def check(sources, builds):
    """`builds` is {folder: text of its meson.build}."""
    problems = []
    for path in sources:
        file = pathlib.PurePosixPath(path)
        for folder in file.parents:
            name = file.relative_to(folder)
            # An example or a test may be listed by its stem, in a loop.
            if re.search(rf"'{re.escape(str(name.with_suffix('')))}(\.cpp)?'", builds.get(str(folder), "")):
                break
        else:
            problems.append(f"{path} is in no meson.build")
    return problems


def self_test():
    assert check({"nn/a.cpp": ""}, {"nn": "files('b.cpp')"})
    assert check({"nn/a.cpp": ""}, {"nn": "files('aa.cpp')", "optim": "files('a.cpp')"})
    assert not check({"nn/a.cpp": "", "tensor/cpu/b.cpp": ""}, {"nn": "files('a.cpp')", "tensor": "files('cpu/b.cpp')"})


self_test()
builds = {path.parent.as_posix(): (tree.root() / path).read_text()
          for path in tree.files(tree.root()) if path.name == "meson.build"}
tree.report(check(tree.sources(tree.root(), (".cpp",)), builds))
