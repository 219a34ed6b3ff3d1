// Graphs of convolutions against loops in double.
#include <cudnn.h>

#include <cstdint>

#include "tests/emulator/cudnn_descriptor.h"
#include "tests/emulator/numeric.h"
#include "tests/emulator/settings.h"
#include "tests/emulator/support.h"

using namespace emulator;

namespace {

void ok(cudnnStatus_t status) { REQUIRE(status == CUDNN_STATUS_SUCCESS); }

/// A descriptor of the API.
class Handle {
 public:
  explicit Handle(cudnnBackendDescriptorType_t type) { ok(cudnnBackendCreateDescriptor(type, &handle_)); }
  ~Handle() { cudnnBackendDestroyDescriptor(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    ok(cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(values.size()),
                                values.data()));
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    set(name, type, std::vector<T>{value});
  }
  void link(cudnnBackendAttributeName_t name, const std::vector<const Handle*>& others) {
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Handle* const other : others) handles.push_back(other->handle_);
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles);
  }
  cudnnStatus_t finalise() { return cudnnBackendFinalize(handle_); }
  cudnnBackendDescriptor_t get() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

struct Case {
  std::int64_t samples, channels, height, width, outputs, filter_height, filter_width;
  Sizes before{0, 0}, after{0, 0}, stride{1, 1}, dilation{1, 1};
  std::int64_t groups = 1;
  bool channels_last = false;

  Sizes x() const { return {samples, channels, height, width}; }
  Sizes w() const { return {outputs, channels / groups, filter_height, filter_width}; }
  Sizes y() const {
    const auto extent = [&](std::size_t i, std::int64_t size, std::int64_t filter) {
      return (size + before[i] + after[i] - ((filter - 1) * dilation[i] + 1)) / stride[i] + 1;
    };
    return {samples, outputs, extent(0, height, filter_height), extent(1, width, filter_width)};
  }
  Sizes strides(const Sizes& size) const {
    return channels_last ? Sizes{size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]}
                         : Sizes{size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
  }
};

std::size_t elements(const Sizes& size) {
  return static_cast<std::size_t>(size[0] * size[1] * size[2] * size[3]);
}

void describe_tensor(Handle& tensor, std::int64_t id, cudnnDataType_t type, const Sizes& size,
                     const Sizes& strides, bool is_virtual = false) {
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, size);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{4});
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, static_cast<char>(is_virtual));
  ok(tensor.finalise());
}

enum Direction { forward, data, filter };

struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, parameters, alpha, beta;
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/// One convolution, with bias and ReLU after it if `fused`, from description to execution.
class Graph {
 public:
  Graph(const Case& shape, Direction direction, cudnnDataType_t type, float beta, bool fused = false)
      : names_(kNames[direction]), convolution_(names_.type) {
    const Sizes bias{1, shape.outputs, 1, 1};
    describe_tensor(x_, 'x', type, shape.x(), shape.strides(shape.x()));
    describe_tensor(w_, 'w', type, shape.w(), shape.strides(shape.w()));
    describe_tensor(y_, 'y', type, shape.y(), shape.strides(shape.y()));
    describe_tensor(bias_, 'b', type, bias, shape.strides(bias));
    describe_tensor(product_, '1', CUDNN_DATA_FLOAT, shape.y(), shape.strides(shape.y()), true);
    describe_tensor(sum_, '2', CUDNN_DATA_FLOAT, shape.y(), shape.strides(shape.y()), true);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
    parameters_.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, shape.before);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, shape.after);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, shape.stride);
    parameters_.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, shape.dilation);
    ok(parameters_.finalise());
    convolution_.link(names_.x, {&x_});
    convolution_.link(names_.w, {&w_});
    convolution_.link(names_.y, {fused ? &product_ : &y_});
    convolution_.link(names_.parameters, {&parameters_});
    convolution_.set(names_.alpha, CUDNN_TYPE_FLOAT, 1.f);
    convolution_.set(names_.beta, CUDNN_TYPE_FLOAT, beta);
    ok(convolution_.finalise());
    std::vector<const Handle*> operations{&convolution_};
    if (fused) {
      pointwise(add_, add_mode_, CUDNN_POINTWISE_ADD, product_, &bias_, sum_);
      pointwise(relu_, relu_mode_, CUDNN_POINTWISE_RELU_FWD, sum_, nullptr, y_);
      operations.insert(operations.end(), {&add_, &relu_});
    }
    graph_.link(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
    ok(graph_.finalise());
    heuristics_.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {&graph_});
    heuristics_.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    ok(heuristics_.finalise());
  }

  /// Of which the emulator has one or none.
  std::int64_t engines() {
    std::int64_t count = -1;
    cudnnBackendDescriptor_t handle = configuration_.get();
    ok(cudnnBackendGetAttribute(heuristics_.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle));
    return count;
  }

  void run(const std::vector<std::int64_t>& ids, const std::vector<void*>& pointers) {
    REQUIRE(engines() == 1);
    plan_.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {&configuration_});
    ok(plan_.finalise());
    std::int64_t bytes = 0, count = 0;
    ok(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                &count, &bytes));
    const DeviceArray<char> workspace(static_cast<std::size_t>(bytes));
    pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack_.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    pack_.set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace.data());
    ok(pack_.finalise());
    cudnnHandle_t handle = nullptr;
    ok(cudnnCreate(&handle));
    ok(cudnnBackendExecute(handle, plan_.get(), pack_.get()));
    ok(cudnnDestroy(handle));
  }

 private:
  static void pointwise(Handle& operation, Handle& parameters, cudnnPointwiseMode_t mode, const Handle& x,
                        const Handle* b, const Handle& y) {
    parameters.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    parameters.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    ok(parameters.finalise());
    operation.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {&parameters});
    operation.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {&x});
    if (b) operation.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {b});
    operation.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {&y});
    ok(operation.finalise());
  }

  Names names_;
  Handle convolution_;
  Handle x_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, w_{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
      y_{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  Handle bias_{CUDNN_BACKEND_TENSOR_DESCRIPTOR}, product_{CUDNN_BACKEND_TENSOR_DESCRIPTOR},
      sum_{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  Handle parameters_{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR};
  Handle add_{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR},
      relu_{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
  Handle add_mode_{CUDNN_BACKEND_POINTWISE_DESCRIPTOR}, relu_mode_{CUDNN_BACKEND_POINTWISE_DESCRIPTOR};
  Handle graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR}, heuristics_{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  Handle configuration_{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}, plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  Handle pack_{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
};

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::vector<float> made;
  RandomNumbers random{seed};
  for (std::size_t i = 0; i < count; ++i) made.push_back(static_cast<float>(random.below(9)) - 4.f);
  return made;
}

/// Adds to the output's values what the convolution gives, straight from its definition.
void expect(const Case& shape, Direction direction, std::vector<float>& x, std::vector<float>& w,
            std::vector<float>& y) {
  const Sizes size = shape.y(), x_strides = shape.strides(shape.x()), w_strides = shape.strides(shape.w()),
              y_strides = shape.strides(size);
  const auto at = [](const Sizes& strides, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<std::size_t>(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
  };
  const std::int64_t in_group = shape.channels / shape.groups, out_group = shape.outputs / shape.groups;
  for (std::int64_t n = 0; n < size[0]; ++n) {
    for (std::int64_t k = 0; k < size[1]; ++k) {
      for (std::int64_t i = 0; i < size[2]; ++i) {
        for (std::int64_t j = 0; j < size[3]; ++j) {
          for (std::int64_t c = 0; c < in_group; ++c) {
            for (std::int64_t r = 0; r < shape.filter_height; ++r) {
              for (std::int64_t s = 0; s < shape.filter_width; ++s) {
                const std::int64_t row = i * shape.stride[0] - shape.before[0] + r * shape.dilation[0];
                const std::int64_t column = j * shape.stride[1] - shape.before[1] + s * shape.dilation[1];
                if (row < 0 || row >= shape.height || column < 0 || column >= shape.width) continue;
                float& in = x[at(x_strides, n, k / out_group * in_group + c, row, column)];
                float &weight = w[at(w_strides, k, c, r, s)], &out = y[at(y_strides, n, k, i, j)];
                if (direction == forward) out += in * weight;
                if (direction == data) in += out * weight;
                if (direction == filter) weight += out * in;
              }
            }
          }
        }
      }
    }
  }
}

const Case kCases[] = {
    {2, 3, 5, 6, 4, 3, 3},
    {1, 4, 7, 8, 6, 3, 2, {1, 2}, {2, 0}, {2, 1}, {1, 2}},
    {2, 4, 6, 5, 6, 3, 3, {1, 1}, {1, 1}, {1, 2}, {1, 1}, 2},
    {2, 4, 6, 5, 4, 3, 3, {1, 1}, {1, 1}, {2, 2}, {1, 1}, 4, true},
    {1, 2, 3, 3, 2, 1, 1, {4, 4}, {4, 4}, {3, 3}},
};

}  // namespace

TEST_CASE("cuDNN's convolutions agree with loops") {
  for (const Case& shape : kCases) {
    for (const Direction direction : {forward, data, filter}) {
      for (const float beta : {0.f, 1.f}) {
        CAPTURE(&shape - kCases);
        CAPTURE(direction);
        std::vector<float> x = numbers(elements(shape.x()), 1), w = numbers(elements(shape.w()), 2),
                           y = numbers(elements(shape.y()), 3);
        std::vector<float>& output = direction == forward ? y : direction == data ? x : w;
        const DeviceArray<float> on_device_x(x), on_device_w(w), on_device_y(y);
        const DeviceArray<float>& target = direction == forward ? on_device_y
                                           : direction == data  ? on_device_x
                                                                : on_device_w;
        Graph(shape, direction, CUDNN_DATA_FLOAT, beta)
            .run({'x', 'w', 'y'}, {on_device_x.data(), on_device_w.data(), on_device_y.data()});
        if (beta == 0) output.assign(output.size(), 0.f);
        expect(shape, direction, x, w, y);
        CHECK(target.values() == output);
      }
    }
  }
}

TEST_CASE("cuDNN's graph fuses bias and ReLU") {
  const Case& shape = kCases[1];
  std::vector<float> x = numbers(elements(shape.x()), 1), w = numbers(elements(shape.w()), 2);
  const std::vector<float> bias = numbers(static_cast<std::size_t>(shape.outputs), 4);
  const DeviceArray<float> on_device_x(x), on_device_w(w), on_device_b(bias),
      on_device_y(elements(shape.y()));
  Graph(shape, forward, CUDNN_DATA_FLOAT, 0, true)
      .run({'x', 'w', 'b', 'y'},
           {on_device_x.data(), on_device_w.data(), on_device_b.data(), on_device_y.data()});
  std::vector<float> y(elements(shape.y()), 0.f);
  expect(shape, forward, x, w, y);
  const std::size_t plane = static_cast<std::size_t>(shape.y()[2] * shape.y()[3]);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::max(0.f, y[i] + bias[i / plane % bias.size()]);
  CHECK(on_device_y.values() == y);
}

TEST_CASE("cuDNN has no engine for some types, and refuses shapes that do not fit") {
  CHECK(Graph(kCases[0], forward, CUDNN_DATA_DOUBLE, 0).engines() == 0);
  CHECK(Graph(kCases[0], forward, CUDNN_DATA_INT32, 0).engines() == 0);
  CHECK(Graph(kCases[0], forward, CUDNN_DATA_HALF, 0).engines() == 1);
  CHECK(Graph(kCases[0], forward, CUDNN_DATA_BFLOAT16, 0).engines() == 1);
  settings().architecture = 75;
  CHECK(Graph(kCases[0], forward, CUDNN_DATA_BFLOAT16, 0).engines() == 0);
  settings().architecture = 90;
  Handle tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  CHECK(tensor.finalise() == CUDNN_STATUS_BAD_PARAM);
}
