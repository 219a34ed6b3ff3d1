// The digits that are shipped are UCI's, and fit the network.
#include "examples/digits.h"

#include "tests/values.h"

using namespace mezzo;

TEST_CASE("digits: images from 0 to 1, and as many of each as UCI says") {
  const data::TensorDataset digits =
      examples::load_digits(MEZZO_EXAMPLES_DIR "/data/digits.safetensors", test_device());
  const auto& [images, labels] = digits.tensors();
  CHECK(images.shape() == Shape{1797, 1, 8, 8});
  CHECK(images.dtype() == float32);
  CHECK(images.device() == test_device());
  CHECK(images.amin().item<double>() == 0);
  CHECK(images.amax().item<double>() == 1);
  CHECK(labels.dtype() == int64);
  Values counts;
  for (int digit = 0; digit < 10; ++digit) counts.push_back(labels.eq(digit).sum().item<double>());
  CHECK(counts == Values{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});

  // The first line of the table.
  const auto [image, label] = digits.get(0);
  CHECK(values(image.select(1, 0) * 16) == Values{0, 0, 5, 13, 9, 1, 0, 0});
  CHECK(label.item<int64_t>() == 0);

  examples::MyModel model;
  model.to(test_device());
  CHECK(model(images.narrow(0, 0, 3)).shape() == Shape{3, 10});
}
