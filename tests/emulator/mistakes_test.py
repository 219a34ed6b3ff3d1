"""Every mistake that mistakes.cpp can commit is noticed in the way that this table says, and what is correct is not.

mistakes_test.py SOURCE KIND=PROGRAM...: mistakes.cu and the program, `plain`, with every access `checked`, or under
AddressSanitizer (`address`).
"""
import os
import re
import subprocess
import sys

NOTHING = "nothing noticed"
# The same words in every mode and program, or words by program and by mode (`plain` stands for `address` too). `{name}` is the line that mistakes.cu
# marks with `at: name`. What only lazy or random streams show goes unnoticed when they are eager, as on a card on a lucky day.
MISTAKES = {
    "correct_barrier": NOTHING,
    "correct_syncwarp": NOTHING,
    "correct_fill": NOTHING,
    "correct_atomics": NOTHING,
    "correct_bytes": NOTHING,
    "correct_copy_between_devices": NOTHING,

    "missing_barrier": {
        "plain": "result: elements are not reversed",
        "checked": r"race, (read after write: {missing_barrier_read} .* and {missing_barrier_write}|"
                   r"write after read: {missing_barrier_write} .* and {missing_barrier_read})"},
    "missing_syncwarp": {
        "plain forward": "result: the neighbour's value is missing",
        "plain": f"result: the neighbour's value is missing|{NOTHING}",  # by luck
        "checked": r"race, (read after write: {missing_syncwarp}|write after read: .* and {missing_syncwarp})"},
    "block_race": {"plain": NOTHING, "checked": "race, (read|write) after write: {block_race} .* and {block_race}"},
    "atomic_then_plain": {
        "plain": NOTHING,
        "checked": "race, (write after read: {atomic_then_plain}|read after write: .* and {atomic_then_plain})"},
    "write_past_end": {
        "plain": "something wrote 0 bytes past the end of a device allocation of 4000 bytes",
        "address": r"AddressSanitizer: use-after-poison(.|\n)*{write_past_end}",
        "checked": "invalid write of 4 bytes at {write_past_end}: 4 bytes past the end of a device allocation of 4000 "
                   "bytes .*block .3,0,0., thread .232,0,0."},
    "read_past_end": {"plain": NOTHING, "address": r"AddressSanitizer: use-after-poison(.|\n)*{read_past_end}",
                      "checked": "invalid read of 4 bytes at {read_past_end}: 4 bytes past the end"},
    "past_static_shared": {
        "plain": "something wrote outside a shared variable",
        "address": r"AddressSanitizer: use-after-poison(.|\n)*{past_static_shared}|{past_static_shared}:.*out of bounds",
        "checked": "invalid write of 4 bytes at {past_static_shared}: outside a shared variable"},
    "past_dynamic_shared": {
        "plain": "something wrote outside a shared variable",
        "address": r"AddressSanitizer: use-after-poison(.|\n)*{past_dynamic_shared}|{past_dynamic_shared}:.*out of bounds",
        "checked": "invalid write of 4 bytes at {past_dynamic_shared}: outside a shared variable"},
    "misaligned": {  # clang has no check of its own where a whole struct is copied
        "plain": f"misaligned access at {{misaligned}}|{NOTHING}",
        "address": f"load of misaligned address|misaligned vector access|{NOTHING}",
        "checked": "misaligned access at {misaligned}|read of (8|16) bytes at {misaligned}: not aligned"},
    "unwritten_shared": "result: NaN",
    "unwritten_memory": "result: NaN",
    "early_return": "__syncthreads.. at {early_return} is reached by 40 of 64 threads, the others have returned",
    "two_barriers": "threads of one block wait at different barriers, at .*{two_barriers}|and {two_barriers}",
    "two_shuffles": "lanes of one warp are in different warp operations, at ({two_shuffles}|.* and {two_shuffles})",
    "foreign_mask": "the lane that calls is not in the mask of the warp operation at {foreign_mask}",
    "deep_recursion": "the kernel needs more stack than the emulator has",

    "host_dereference": "host code dereferenced the device pointer 0x",
    "host_memcpy": "host code dereferenced the device pointer 0x",
    "host_pointer": "argument 0 of kernel .*fill_kernel.* is a host pointer",
    "host_pointer_in_struct": {
        "plain": NOTHING, "checked": "invalid write of 4 bytes at {pointer_in_struct}: host memory"},
    "freed_pointer": "argument 0 of kernel .*fill_kernel.* points to freed device memory",
    "freed_twice": "cudaFree.. of what is not allocated\nerror code: cudaErrorInvalidValue",

    "copy_too_long": "to memory of device 0 outside an allocation .*\nerror code: cudaErrorInvalidValue",
    "copy_of_wrong_kind": "of kind 3 from host memory to memory of device 0 .*\nerror code: cudaErrorInvalidValue",
    "block_too_large": "a block of 2048 x 1 x 1 threads\nerror code: cudaErrorInvalidConfiguration",
    "too_much_static_shared": "more than 48 KiB of static shared memory at {too_much_static_shared}",
    "leading_dimension": "leading dimension 7 of a matrix of 8 rows\nerror code: CUBLAS_STATUS_INVALID_VALUE",
    "matrix_past_end": "cuBLAS: a matrix is not inside one allocation of the device",

    "read_before_synchronize": {"lazy": "result: the host read", "random": f"result: the host read|{NOTHING}",
                                "eager": NOTHING},
    "missing_event": {"lazy": "result: a stream did not wait", "random": f"result: a stream did not wait|{NOTHING}",
                      "eager": NOTHING},
    "default_stream_copy": {"lazy": "result: cudaMemcpy", "random": f"result: cudaMemcpy|{NOTHING}", "eager": NOTHING},
    "source_reused": {"lazy": "result: pinned memory", "random": f"result: pinned memory|{NOTHING}", "eager": NOTHING},

    "synchronize_in_capture": "cudaStreamSynchronize.. on a stream that is captured\n"
                              "error code: cudaErrorStreamCaptureInvalidated",
    "allocate_in_capture": "cudaMalloc.. while a stream is captured\nerror code: cudaErrorStreamCaptureUnsupported",
    "graph_of_freed_memory": "argument 0 of kernel .*set_kernel.* points to freed device memory",

    "pointer_of_other_device": "argument 0 of kernel .*set_kernel.* points to memory of another device",
    "other_device_in_struct": {
        "plain": "access to memory of device 1 by a kernel on device 0",
        "checked": "invalid write of 4 bytes at {pointer_in_struct}: memory of device 1"},
    "stream_of_other_device": "the stream belongs to device 0, current is device 1\n"
                              "error code: cudaErrorInvalidResourceHandle",
    "event_of_other_device": "an event of device 1 is recorded on a stream of device 0\n"
                             "error code: cudaErrorInvalidResourceHandle",
    "copy_between_devices": "from memory of device 1 to memory of device 0 on a stream of device 0\n"
                            "error code: cudaErrorInvalidValue",
    "matrix_of_other_device": "cuBLAS: a matrix is not inside one allocation of the device",
    "handle_of_other_device": "the handle belongs to another device than the current one\n"
                              "error code: CUBLAS_STATUS_EXECUTION_FAILED",
}
MODES = (("eager", "forward"), ("eager", "reverse"), ("lazy", "forward"), ("random", "random"))


def expected(entry, program, mode):
    """The words for a program in a mode: those of the most specific key."""
    if isinstance(entry, str):
        return entry
    for key in (f"{program} {mode[1]}", program, mode[0], f"plain {mode[1]}", "plain"):
        if key in entry:
            return entry[key]
    raise KeyError(f"no words for {program} in mode {mode}")


def run(program, name, mode):
    environment = dict(os.environ, CUDA_EMULATOR_STREAMS=mode[0], CUDA_EMULATOR_ORDER=mode[1], CUDA_EMULATOR_SEED="7",
                       CUDA_EMULATOR_WORKERS="1", CUDA_EMULATOR_DEVICES="2", CUDA_EMULATOR_MEMORY_MIB="64")
    done = subprocess.run([program, name], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=120)
    return done.stdout


def main(source, *programs):
    programs = [program.split("=", 1) for program in programs]
    with open(source) as file:
        marks = {name: f"{os.path.basename(source)}:{number}"
                 for number, line in enumerate(file, 1) for name in re.findall(r"// at: (\w+)", line)}
    problems = []
    names = set(run(programs[0][1], "", MODES[0]).split())
    if names != set(MISTAKES):
        problems.append(f"the program and the table differ: {', '.join(sorted(names ^ set(MISTAKES)))}")
    for name in sorted(names & set(MISTAKES)):
        for label, program in programs:
            for mode in MODES:
                words = expected(MISTAKES[name], label, mode)
                for mark, place in marks.items():
                    words = words.replace("{" + mark + "}", r"\S*" + re.escape(place))
                output = run(program, name, mode)
                if not re.search(words, output):
                    problems.append(f"{name}, {label}, {' '.join(mode)}: expected {words}, got:\n{output}")
    print("\n".join(problems) or f"{len(MISTAKES)} mistakes in {len(MODES)} modes of {len(programs)} programs")
    return 1 if problems else 0


sys.exit(main(*sys.argv[1:]))
