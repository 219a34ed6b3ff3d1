// All of nn.
#pragma once

#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/embedding.h"
#include "nn/fusion.h"
#include "nn/init.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/max_pool2d.h"
#include "nn/module.h"
#include "nn/residual.h"
#include "nn/sequential.h"
