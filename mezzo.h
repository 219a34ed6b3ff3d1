// All of mezzo: `#include <mezzo.h>` and `using namespace mezzo;`.
#pragma once

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "tensor/error.h"
#include "tensor/index.h"
#include "tensor/io/safetensors.h"
#include "tensor/random.h"
#include "tensor/state_dict.h"
#include "tensor/tensor.h"
#include "tensor/threads.h"
