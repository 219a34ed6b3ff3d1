#include "data/data_loader.h"

#include "tensor/random.h"

namespace mezzo::data {

DataLoaderBase::DataLoaderBase(int64_t length, const DataLoaderOptions& options)
    : length_(length), options_(options) {
  if (batch_size() < 1) fail("DataLoader", text("batch_size = ", batch_size(), " is less than 1"));
  if (size() == 0) {
    fail("DataLoader",
         length == 0 ? "the dataset is empty" : text(length, " examples make no batch of ", batch_size()));
  }
}

int64_t DataLoaderBase::size() const {
  return length_ / batch_size() + (!options_.drop_last && length_ % batch_size() != 0);
}

Tensor DataLoaderBase::next_order() {
  // Each epoch has a part of its own in the seed's stream of random numbers. The first part is left to the
  // default generator, which may have the same seed.
  Generator generator(options_.seed);
  generator.set_offset(static_cast<uint64_t>(++epoch_) << 32);
  return options_.shuffle ? randperm(length_, generator) : arange(length_);
}

StateDict DataLoaderBase::state_dict() const {
  StateDict state;
  state.insert("seed", full({}, static_cast<int64_t>(options_.seed)));
  state.insert("epoch", full({}, epoch_));
  return state;
}

void DataLoaderBase::load_state_dict(const StateDict& state) {
  const auto seed = state.at("seed").item<int64_t>(), epoch = state.at("epoch").item<int64_t>();
  options_.seed = static_cast<uint64_t>(seed);
  epoch_ = epoch;
}

}  // namespace mezzo::data
