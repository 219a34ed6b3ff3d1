// Mixed precision: autocast, loss scaling, and what there is to see of both.
#pragma once

#include "amp/autocast.h"
#include "amp/grad_scaler.h"
#include "amp/gradient_report.h"
#include "amp/trace.h"
