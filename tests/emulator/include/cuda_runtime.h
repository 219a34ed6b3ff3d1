// Found before the toolkit's header of this name: its types and prototypes, then what nvcc gives device code.
#pragma once

#include <math.h>

#include <cstdlib>

#define CUDA_EMULATOR 1

// Without nvcc the toolkit defines the other qualifiers as nothing, but not this one.
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

#include_next <cuda_runtime.h>

#include "emulator/atomics.h"
#include "emulator/half.h"
#include "emulator/launch.h"
#include "emulator/math.h"
#include "emulator/memory_access.h"
#include "emulator/shared.h"
#include "emulator/sync.h"
#include "emulator/thread.h"
#include "emulator/warp.h"
