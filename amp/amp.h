// Mixed precision: autocast and loss scaling.
#pragma once

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "amp/trace.h"
