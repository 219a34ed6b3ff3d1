// The rule of the scale as a table, by PyTorch's GradScaler, and the kernels that apply it.
#include "tensor/scale_rule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tensor/kernels.h"
#include "tests/values.h"

using namespace mezzo;

namespace {

struct Sequence {
  const char* name;
  ScaleState start;
  ScaleRule rule;
  std::vector<bool> flags;
  std::vector<ScaleState> states;
};

// Run with PyTorch 2.15 on a CPU.
const Sequence kSequences[] = {
    {"PyTorch's own test", {4, 0}, {2, .25, 2}, {0, 0, 1}, {{4, 1}, {8, 0}, {2, 0}}},
    {"two powers",
     {65536, 0},
     {2, .5, 3},
     {0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0},
     {{65536, 1},
      {65536, 2},
      {131072, 0},
      {65536, 0},
      {65536, 1},
      {65536, 2},
      {32768, 0},
      {32768, 1},
      {32768, 2},
      {65536, 0},
      {65536, 1},
      {65536, 2},
      {131072, 0}}},
    {"factors that are no powers of two",
     {1000, 0},
     {1.1, .7, 2},
     {0, 1, 0, 0, 1, 1, 0},
     {{1000, 1}, {700, 0}, {700, 1}, {770, 0}, {539, 0}, {377.29998779296875f, 0}, {377.29998779296875f, 1}}},
    // Where a factor rounded to float32 gives another product.
    {"products in double, up", {9, 0}, {1.1, .7, 1}, {0}, {{9.899999618530273f, 0}}},
    {"products in double, down", {9, 0}, {1.1, .7, 1}, {1}, {{6.300000190734863f, 0}}},
    {"growth up to the largest power",
     {0x1p126f, 0},
     {2, .5, 1},
     {0, 0, 0, 0},
     {{0x1p127f, 0}, {0x1p127f, 0}, {0x1p127f, 0}, {0x1p127f, 0}}},
    {"growth beyond float32 is refused", {1e38f, 0}, {16, .5, 1}, {0}, {{9.999999680285692e37f, 0}}},
    {"an interval below the tracker",
     {8, 5},
     {2, .5, 3},
     {0, 0, 0, 0, 0, 0},
     {{8, 6}, {8, 7}, {8, 8}, {8, 9}, {8, 10}, {8, 11}}},
    {"which an overflow ends", {8, 5}, {2, .5, 3}, {1, 0, 0, 0}, {{4, 0}, {4, 1}, {4, 2}, {8, 0}}},
    {"an interval of one", {128, 0}, {2, .5, 1}, {0, 0, 1, 0}, {{256, 0}, {512, 0}, {256, 0}, {512, 0}}},
    // Not PyTorch's, whose scale goes on to 0.
    {"back-off stops",
     {0x1p-125f, 1},
     {2, .5, 2},
     {1, 1, 1},
     {{0x1p-126f, 0}, {0x1p-126f, 0}, {0x1p-126f, 0}}},
    {"between powers too",
     {0x1.8p-126f, 0},
     {2, .5, 2},
     {1, 0, 0},
     {{0x1p-126f, 0}, {0x1p-126f, 1}, {0x1p-125f, 0}}},
    {"the tracker does not overflow", {8, INT32_MAX}, {2, .5, 3}, {0, 1}, {{8, INT32_MAX}, {4, 0}}},
};

template <class Step>
void check_sequences(Step step) {
  for (const Sequence& sequence : kSequences) {
    CAPTURE(sequence.name);
    ScaleState state = sequence.start;
    REQUIRE(sequence.flags.size() == sequence.states.size());
    for (size_t i = 0; i < sequence.flags.size(); ++i) {
      CAPTURE(i);
      state = step(state, sequence.flags[i], sequence.rule);
      CHECK(state.scale == sequence.states[i].scale);
      CHECK(state.tracker == sequence.states[i].tracker);
    }
  }
}

}  // namespace

static_assert(next({4, 1}, false, {2, .25, 2}) == ScaleState{8, 0});  // at compile time too

TEST_CASE("next: sequences of updates") { check_sequences(next); }

TEST_CASE("next: 65536 halved 200 times ends at 2^-126, and grows again") {
  ScaleState state{65536, 0};
  for (int i = 1; i <= 200; ++i) {
    state = next(state, true, {});
    CHECK(state.scale == std::ldexp(1.0, std::max(16 - i, -126)));
    CHECK(std::isfinite(inverse(state.scale)));
  }
  CHECK(next(state, false, {.growth_interval = 1}).scale == 0x1p-125f);
}

TEST_CASE("next: the default rule grows after 2,000 updates") {
  ScaleState state{65536, 0};
  for (int i = 0; i < 1999; ++i) state = next(state, false, {});
  CHECK(state == ScaleState{65536, 1999});
  CHECK(next(state, false, {}) == ScaleState{131072, 0});
}

TEST_CASE("update_scale applies the rule to memory") {
  check_sequences([](ScaleState state, bool found, const ScaleRule& rule) {
    const Tensor scale = scalar(state.scale, float32), tracker = scalar(state.tracker, int32);
    // Not 0 is what counts: flags may have been added up.
    const Tensor found_inf = scalar(found ? 2 : 0, float32);
    kernels(test_device())
        .update_scale(scale.view_of_memory(), tracker.view_of_memory(), found_inf.view_of_memory(), rule);
    return ScaleState{scale.item<float>(), tracker.item<int32_t>()};
  });
}
