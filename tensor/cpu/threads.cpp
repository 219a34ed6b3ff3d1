#include "tensor/threads.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tensor/error.h"

namespace mezzo {

int num_threads() {
#ifdef _OPENMP
  return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
}

void set_num_threads(int threads) {
  if (threads < 1) fail("set_num_threads", text("needs at least one thread, not ", threads));
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
}

}  // namespace mezzo
