// Texts that say where something happened, and the signal handler that finds words for a bad access.
#pragma once

#include <string>

#include <emulator/location.h>

namespace emulator {

std::string to_string(const Location& at);

/// The kernel's name, for messages: it asks addr2line.
std::string function_name(const void* function);

/// "file:line" of the call that returns to `return_address`, by addr2line.
std::string source_line(const void* return_address);

/// " [kernel f, block (0,0,0), thread (1,0,0)]" of the CUDA thread that this OS thread runs, or "".
std::string running_thread();

/// Gives the OS thread a stack for signal handlers: a kernel may have used up its own.
void use_signal_stack();

/// Prints on standard error, in one piece.
void print(const std::string& message);

}  // namespace emulator
