"""cuda/find.py in made-up folders: find_test.py ROOT."""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "cuda"))
from find import find  # noqa: E402


def make(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def toolkit(version, library="lib64"):
    return {"bin/nvcc": "", "include/cuda_runtime_api.h": f"#define CUDART_VERSION  {version}\n", "include/cublas_v2.h": "",
            f"{library}/libcudart.so": "", f"{library}/libcublas.so": ""}


def cudnn(major, minor, library="lib/libcudnn.so.9"):
    text = f"#define CUDNN_MAJOR {major}\n#define CUDNN_MINOR {minor}\n"
    return {"include/cudnn.h": "", "include/cudnn_version.h": text, **({library: ""} if library else {})}


def main():
    with tempfile.TemporaryDirectory() as name:
        base = pathlib.Path(name).resolve()

        def found_in(*folders):
            found = find([str(base / folder) for folder in folders])
            return {what: str(path).removeprefix(f"{base}/") for what, path in found.items()}

        make(base / "cuda", {**toolkit(13000), **cudnn(9, 19, "lib64/libcudnn.so")})
        found = found_in("cuda")
        assert found == {"nvcc": "cuda/bin/nvcc", "include": "cuda/include", "cublas_include": "cuda/include",
                         "cudnn_include": "cuda/include", "cudart": "cuda/lib64/libcudart.so",
                         "cublas": "cuda/lib64/libcublas.so", "cudnn": "cuda/lib64/libcudnn.so", "version": "13000"}, found

        # cuDNN of Python's packages: the newest that has a library, and none before 9.8.
        make(base / "bare", toolkit(12040, "targets/x86_64-linux/lib"))
        make(base / "a", cudnn(9, 7))
        make(base / "b", cudnn(9, 10))
        make(base / "c", cudnn(9, 30, None))
        assert "cudnn" not in found_in("bare", "a")
        found = found_in("bare", "a", "b", "c")
        assert found["cudnn"] == "b/lib/libcudnn.so.9" and found["cudnn_include"] == "b/include", found
        assert found["cudart"] == "bare/targets/x86_64-linux/lib/libcudart.so" and found["version"] == "12040", found

        # A toolkit before 12 is none, but a cuDNN beside it is one.
        make(base / "old", {**toolkit(11080), **cudnn(9, 8)})
        found = found_in("old")
        assert found == {"cudnn_include": "old/include", "cudnn": "old/lib/libcudnn.so.9", "version": "0"}, found


main()
