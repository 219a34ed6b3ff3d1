#include "tests/emulator/diagnosis.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/emulator/block.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/sanitizers.h"
#include "tests/emulator/settings.h"

namespace emulator {

namespace {

/// The program or library around an address, and the address as its file has it.
struct Place {
  std::string file;
  std::uintptr_t address = 0;

  explicit Place(const void* code) {
    Dl_info module{}, own{};
    if (!dladdr(code, &module) || !dladdr(reinterpret_cast<const void*>(&print), &own)) return;
    file = module.dli_fname;
    if (module.dli_fbase == own.dli_fbase) {  // the program, whose name may be relative
      std::array<char, 4096> path{};
      if (readlink("/proc/self/exe", path.data(), path.size() - 1) > 0) file = path.data();
    }
    address = reinterpret_cast<std::uintptr_t>(code);
    const auto* const header = static_cast<const Elf64_Ehdr*>(module.dli_fbase);
    if (header->e_type == ET_DYN) address -= reinterpret_cast<std::uintptr_t>(module.dli_fbase);
  }
};

/// The lines that addr2line prints about an address.
std::vector<std::string> addr2line(const char* options, const void* code) {
  const Place place(code);
  std::array<char, 4500> command{};
  std::snprintf(command.data(), command.size(), "addr2line %s -e '%s' 0x%zx", options, place.file.c_str(),
                static_cast<std::size_t>(place.address));
  std::vector<std::string> lines;
  std::array<char, 2048> line{};
  if (FILE* const output = popen(command.data(), "r")) {
    while (std::fgets(line.data(), static_cast<int>(line.size()), output)) {
      line[std::strcspn(line.data(), "\n")] = 0;
      lines.emplace_back(line.data());
    }
    pclose(output);
  }
  if (lines.empty()) lines.emplace_back("?");
  return lines;
}

/// Whether a line belongs to what kernels call and not to a kernel.
bool is_foreign(const std::string& line) {
  return line.find("/include/emulator/") != std::string::npos || line.rfind("/usr/", 0) == 0;
}

std::string text(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

struct sigaction former_action;

/// " at file:line" of an instruction, "" if that is not known.
std::string at_line(const void* instruction) {
  if (!instruction) return "";
  const std::string line = source_line(static_cast<const char*>(instruction) + 1);
  return line[0] == '?' ? "" : " at " + line;
}

std::string explain(const siginfo_t& info, const void* instruction) {
  const auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  const int device = device_of(info.si_addr);
  const Launch* const launch = Block::of_this_thread().launch();
  const std::string line = at_line(instruction);
  char pointer[32];
  std::snprintf(pointer, sizeof pointer, "%p", info.si_addr);
  if (!launch) {
    const bool on_device = device != kNoDevice;
    return (on_device ? "host code dereferenced the device pointer " : "invalid access to ") +
           (pointer + line);
  }
  std::string message = "cudaErrorIllegalAddress: ";
  if (info.si_code == SI_KERNEL) {  // the processor says no address then
    message += "misaligned vector access" + line + ", or a wild pointer";
  } else if (device != kNoDevice && device != launch->device) {
    message += "access to memory of device " + std::to_string(device) + " by a kernel on device " +
               std::to_string(launch->device) + line;
  } else if (address < current.stack.low && current.stack.low - address <= kGuardBytes) {
    message += "the kernel needs more stack than the emulator has";
  } else {
    message += "invalid access to " + (pointer + line);
  }
  return message + running_thread();
}

/// The trap of a check that the compiler put before an access; the only one in kernels is for alignment.
void on_trap(int signal_number, siginfo_t* info, void*) {
  current.launch = 0;  // the checker has nothing to say about what follows
  const std::string where = running_thread();
  if (!where.empty()) {
    print("cudaErrorMisalignedAddress: misaligned access at " +
          source_line(static_cast<char*>(info->si_addr) + 1) + where);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void on_bad_access(int signal_number, siginfo_t* info, void* context) {
  current.launch = 0;
  print(explain(*info, program_counter(context)));
  if ((former_action.sa_flags & SA_SIGINFO) && former_action.sa_sigaction) {
    former_action.sa_sigaction(signal_number, info, context);  // a sanitizer's report with stack traces
    return;
  }
  std::array<void*, 32> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void note_at_death() {
  const std::string where = running_thread();
  if (!where.empty()) print("that happened in" + where);
}

/// Before main: a test may follow a device pointer without having called the runtime in a way that would do
/// it.
struct Handlers {
  Handlers() {
    use_signal_stack();
    struct sigaction action {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &former_action);
    action.sa_sigaction = on_trap;
    sigaction(SIGILL, &action, nullptr);
    sanitizers::at_death(note_at_death);
  }
} handlers;

}  // namespace

void use_signal_stack() {
  constexpr std::size_t kBytes = 64 << 10;
  stack_t present{};
  sigaltstack(nullptr, &present);
  if (!(present.ss_flags & SS_DISABLE)) return;
  stack_t stack{};
  stack.ss_sp = new char[kBytes];  // as long as the thread; there are few
  stack.ss_size = kBytes;
  sigaltstack(&stack, nullptr);
}

std::string to_string(const Location& at) { return std::string(at.file) + ":" + std::to_string(at.line); }

std::string function_name(const void* function) { return addr2line("-Cf", function).front(); }

std::string source_line(const void* return_address) {
  // From the innermost inlined call outwards.
  const auto lines = addr2line("-i", static_cast<const char*>(return_address) - 1);
  const auto own = std::find_if_not(lines.begin(), lines.end(), is_foreign);
  const std::string& line = own != lines.end() ? *own : lines.front();
  return line.substr(0, line.find(" ("));  // " (discriminator 3)"
}

std::string running_thread() {
  const Launch* const launch = Block::of_this_thread().launch();
  if (!launch) return "";
  return " [kernel " + function_name(launch->kernel.function) + ", block " + text(blockIdx) + ", thread " +
         text(threadIdx) + "]";
}

void print(const std::string& message) {
  const std::string line = "CUDA emulator: " + message + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace emulator
