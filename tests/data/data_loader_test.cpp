#include "data/data_loader.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/ops.h"
#include "tensor/random.h"
#include "tests/error_text.h"
#include "tests/values.h"

using namespace mezzo;
using data::DataLoader;
using data::TensorDataset;

namespace {

/// Inputs [length, 2] with rows {10 i, 10 i + 1}, labels i.
TensorDataset<2> dataset_of(int64_t length) {
  const Tensor labels = arange(length, {.device = test_device()});
  return TensorDataset((labels * 10).unsqueeze(1) + make({0, 1}, int64), labels);
}

/// Labels of an epoch, batch by batch. Checks that the inputs are those of the labels.
std::vector<Values> epoch(auto& loader) {
  std::vector<Values> batches;
  for (auto [input, label] : loader) {
    CHECK(input.device() == test_device());
    CHECK(input.shape() == Shape{label.size(0), 2});
    CHECK(values(input.select(1, 0)) == values(label * 10));
    CHECK(values(input.select(1, 1)) == values(label * 10 + 1));
    batches.push_back(values(label));
  }
  return batches;
}

Values joined(const std::vector<Values>& batches) {
  Values all;
  for (const Values& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

Values sorted(Values all) {
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("TensorDataset: examples and batches of all its tensors") {
  const TensorDataset dataset(make({1, 2, 3, 4, 5, 6}, {3, 2}), make({7, 8, 9}, int64),
                              make({0, 1, 0}, uint8));
  CHECK(dataset.size() == 3);
  const auto [row, label, flag] = dataset.get(1);
  CHECK(row.shape() == Shape{2});
  CHECK(values(row) == Values{3, 4});
  CHECK(label.shape() == Shape{});
  CHECK(label.item<int64_t>() == 8);
  CHECK(flag.dtype() == uint8);
  const auto [rows, labels, flags] = dataset.get_batch(tensor({2, 0, 2}, {.dtype = int64}));
  CHECK(values(rows) == Values{5, 6, 1, 2, 5, 6});
  CHECK(values(labels) == Values{9, 7, 9});
  CHECK(values(flags) == Values{0, 0, 0});
  CHECK(error_text([&] { dataset.get(3); }) != "");
  CHECK(error_text([&] {
          dataset.get_batch(tensor({3}, {.dtype = int64}));
        }).starts_with("index_select: index 3 at [0] is outside [0, 3); "));
}

TEST_CASE("random_split: each example in one part, by the default generator") {
  const auto split = [](uint64_t seed) {
    manual_seed(seed);
    return data::random_split(dataset_of(50), {10, 0, 40});
  };
  const auto parts = split(1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size() == 10);
  CHECK(parts[1].size() == 0);
  CHECK(parts[2].size() == 40);
  std::vector<Values> labels;
  for (const auto& part : parts) {
    const auto& [input, label] = part.tensors();
    CHECK(values(input.select(1, 0)) == values(label * 10));
    labels.push_back(values(label));
  }
  CHECK(sorted(joined(labels)) == values(arange(50)));
  CHECK(labels[0] != sorted(labels[0]));
  CHECK(values(split(1)[0].tensors()[1]) == labels[0]);
  CHECK(values(split(2)[0].tensors()[1]) != labels[0]);
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{4, 2}, {4}, {}, {6, -1}}) {
    CHECK(error_text([&] { data::random_split(dataset_of(5), lengths); }) ==
          "random_split: lengths must add up to the 5 examples, and none may be negative");
  }
}

TEST_CASE("TensorDataset: what is refused") {
  const Tensor three = make({1, 2, 3}), four = make({1, 2, 3, 4}, {4, 1});
  CHECK(error_text([&] { TensorDataset(three, three, four); }) ==
        text("TensorDataset: lengths 3 and 4 differ; first ", describe(three), ", other ", describe(four)));
  CHECK(error_text([&] { TensorDataset(three, scalar(1)); }) ==
        text("TensorDataset: a tensor has no dimension 0; tensor ", describe(scalar(1))));
  CHECK(error_text([&] { TensorDataset(Tensor(), three); }) == "TensorDataset: a tensor has no dimension 0");
}

TEST_CASE("DataLoader: batches in order, the last one smaller or left out") {
  DataLoader single(dataset_of(2));
  CHECK(epoch(single) == std::vector<Values>{{0}, {1}});
  DataLoader loader(dataset_of(7), {.batch_size = 3});
  CHECK(loader.size() == 3);
  for (int i = 0; i < 2; ++i) CHECK(epoch(loader) == std::vector<Values>{{0, 1, 2}, {3, 4, 5}, {6}});
  DataLoader dropping(dataset_of(7), {.batch_size = 3, .drop_last = true});
  CHECK(dropping.size() == 2);
  CHECK(epoch(dropping) == std::vector<Values>{{0, 1, 2}, {3, 4, 5}});
  DataLoader even(dataset_of(6), {.batch_size = 3, .drop_last = true});
  CHECK(epoch(even) == std::vector<Values>{{0, 1, 2}, {3, 4, 5}});
  DataLoader large(dataset_of(2), {.batch_size = 3});
  CHECK(epoch(large) == std::vector<Values>{{0, 1}});
}

TEST_CASE("DataLoader: a shuffled epoch has every example once, in the order of seed and epoch") {
  const data::DataLoaderOptions options{.batch_size = 32, .shuffle = true, .seed = 5};
  DataLoader loader(dataset_of(100), options), same(dataset_of(100), options),
      other(dataset_of(100), {.batch_size = 32, .shuffle = true, .seed = 6});
  const auto batches = epoch(loader);
  REQUIRE(batches.size() == 4);
  CHECK(batches[0].size() == 32);
  CHECK(batches[3].size() == 4);
  const Values first = joined(batches), second = joined(epoch(loader));
  CHECK(sorted(first) == values(arange(100)));
  CHECK(sorted(second) == values(arange(100)));
  CHECK(first != sorted(first));
  CHECK(first != second);
  manual_seed(1);  // of other random numbers: no matter
  CHECK(joined(epoch(same)) == first);
  CHECK(joined(epoch(same)) == second);
  const Values others = joined(epoch(other));
  CHECK(others != first);
  CHECK(others != second);
}

TEST_CASE("DataLoader: draws nothing from the default generator, nor what that draws") {
  DataLoader loader(dataset_of(50), {.batch_size = 50, .shuffle = true, .seed = 3});
  manual_seed(3);
  const Values order = joined(epoch(loader));
  CHECK(default_generator().offset() == 0);
  CHECK(order != values(randperm(50)));
}

TEST_CASE("DataLoader: an epoch that is broken off is over") {
  const data::DataLoaderOptions options{.batch_size = 10, .shuffle = true};
  DataLoader loader(dataset_of(40), options), whole(dataset_of(40), options);
  for (auto [input, label] : loader) {
    if (label.numel() == 10) break;
  }
  epoch(whole);
  CHECK(epoch(loader) == epoch(whole));
}

TEST_CASE("DataLoader: a state loaded goes on with the next epoch") {
  DataLoader loader(dataset_of(30), {.batch_size = 7, .shuffle = true, .seed = UINT64_MAX});
  epoch(loader);
  epoch(loader);
  const StateDict state = loader.state_dict();
  CHECK(state.size() == 2);
  CHECK(state.at("epoch").item<int64_t>() == 2);
  DataLoader resumed(dataset_of(30), {.batch_size = 7, .shuffle = true});
  resumed.load_state_dict(state);
  CHECK(epoch(resumed) == epoch(loader));

  StateDict broken;
  broken.insert("seed", scalar(1, int64));
  CHECK(error_text([&] { resumed.load_state_dict(broken); }) == "state_dict: there is no \"epoch\"");
  CHECK(epoch(resumed) == epoch(loader));
}

TEST_CASE("DataLoader: what is refused") {
  for (const int64_t size : {0, -3}) {
    CHECK(error_text([&] { DataLoader(dataset_of(3), {.batch_size = size}); }) ==
          text("DataLoader: batch_size = ", size, " is less than 1"));
  }
  CHECK(error_text([] { DataLoader(dataset_of(0)); }) == "DataLoader: the dataset is empty");
  CHECK(error_text([] { DataLoader(dataset_of(3), {.batch_size = 4, .drop_last = true}); }) ==
        "DataLoader: 3 examples make no batch of 4");
}
