// DataLoader: a dataset in batches.
//
//   data::DataLoader loader(data::TensorDataset(images, labels), {.batch_size = 32, .shuffle = true});
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     for (auto [input, label] : loader) { ... }
//   }
#pragma once

#include <iterator>
#include <utility>

#include "data/dataset.h"
#include "tensor/state_dict.h"

namespace mezzo::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;    ///< each epoch in another order
  bool drop_last = false;  ///< leaves out the last batch if it is smaller than the others
  uint64_t seed = 0;       ///< of the orders: that of an epoch depends on seed and number of the epoch alone
};

/// What loaders of all datasets have in common: the order of the examples.
class DataLoaderBase {
 public:
  /// Throws Error for a batch_size below 1, and if `length` examples do not make one batch.
  DataLoaderBase(int64_t length, const DataLoaderOptions& options);

  /// Batches of an epoch.
  int64_t size() const;
  /// `seed` and `epoch`, the number of epochs begun: a loader that loads them goes on with the next epoch.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 protected:
  /// Begins an epoch: the positions of all its examples, int64 [length].
  Tensor next_order();
  int64_t batch_size() const { return options_.batch_size; }

 private:
  int64_t length_, epoch_ = 0;
  DataLoaderOptions options_;
};

/// Goes over a dataset in batches; each loop over it is an epoch. Must outlive the loop.
template <class Dataset>
class DataLoader : public DataLoaderBase {
 public:
  explicit DataLoader(Dataset dataset, const DataLoaderOptions& options = {})
      : DataLoaderBase(dataset.size(), options), dataset_(std::move(dataset)) {}

  class Iterator {
   public:
    Iterator(const DataLoader& loader, Tensor order) : loader_(&loader), order_(std::move(order)) {}
    auto operator*() const {
      const int64_t start = batch_ * loader_->batch_size();
      return loader_->dataset_.get_batch(order_.slice(0, start, start + loader_->batch_size()));
    }
    Iterator& operator++() {
      ++batch_;
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return batch_ == loader_->size(); }

   private:
    const DataLoader* loader_;
    Tensor order_;
    int64_t batch_ = 0;
  };
  /// Begins an epoch.
  Iterator begin() { return {*this, next_order()}; }
  std::default_sentinel_t end() const { return {}; }

 private:
  Dataset dataset_;
};

}  // namespace mezzo::data
