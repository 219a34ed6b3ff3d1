// Mixed precision: autocast.
#pragma once

#include "amp/autocast.h"
#include "amp/trace.h"
