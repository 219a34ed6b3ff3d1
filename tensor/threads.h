// Threads of the CPU kernels.
#pragma once

namespace mezzo {

/// Threads that kernels called from this thread may use; at first OMP_NUM_THREADS or the number of cores.
int num_threads();
/// Sets it; throws Error below 1. Results do not depend on it, but for sums inside oneDNN.
void set_num_threads(int threads);

}  // namespace mezzo
