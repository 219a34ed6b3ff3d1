#include "tests/emulator/cudnn_operation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/emulator/settings.h"

namespace emulator {

namespace {

std::optional<Type> type_of(const Descriptor& tensor) {
  switch (tensor.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_FLOAT:
      return Type::float32;
    case CUDNN_DATA_DOUBLE:
      return Type::float64;
    case CUDNN_DATA_HALF:
      return Type::float16;
    case CUDNN_DATA_BFLOAT16:
      return Type::bfloat16;
    default:
      return std::nullopt;
  }
}

Sizes dimensions_of(const Descriptor* tensor) {
  return tensor ? tensor->sizes(CUDNN_ATTR_TENSOR_DIMENSIONS) : Sizes{};
}

// Convolution
// ----------------------------------------------------------------------------------------------------

enum class Direction { forward, data, filter };

/// The attributes' names, which each direction has of its own.
struct ConvolutionNames {
  Direction direction;
  int x, w, y, parameters, alpha, beta;

  int output() const { return direction == Direction::forward ? y : direction == Direction::data ? x : w; }
};

std::optional<ConvolutionNames> convolution_names(const Descriptor& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return ConvolutionNames{Direction::forward,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return ConvolutionNames{Direction::data,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return ConvolutionNames{Direction::filter,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return std::nullopt;
  }
}

std::string problem_of_convolution(const Descriptor& operation, const ConvolutionNames& names) {
  const Sizes x = dimensions_of(operation.linked(names.x)), w = dimensions_of(operation.linked(names.w)),
              y = dimensions_of(operation.linked(names.y));
  const Descriptor* const parameters = operation.linked(names.parameters);
  if (x.size() != 4 || w.size() != 4 || y.size() != 4 || !parameters) {
    return "a convolution needs x, w and y of four dimensions and a convolution descriptor";
  }
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0) {
    return "channels or samples of a convolution do not fit together";
  }
  const Sizes before = parameters->sizes(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
              after = parameters->sizes(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
              stride = parameters->sizes(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
              dilation = parameters->sizes(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (before.size() != 2) return "the emulator has convolutions of two dimensions";
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t extent = (w[2 + i] - 1) * dilation[i] + 1;
    if (y[2 + i] != (x[2 + i] + before[i] + after[i] - extent) / stride[i] + 1) {
      return "the output of a convolution has not the size that its input and parameters give";
    }
  }
  return "";
}

/// Calls visit(w element, x element, y element, count, step) for runs along a row of the output: the w
/// element belongs to `count` elements of y, one after the other, and to elements of x that lie `step` apart.
template <class Visit>
void each_run(const TensorLayout& x, const TensorLayout& w, const TensorLayout& y,
              const Descriptor& parameters, Visit visit) {
  const Sizes padding = parameters.sizes(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
              stride = parameters.sizes(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
              dilation = parameters.sizes(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto [samples, x_channels, x_height, x_width] = x.dimensions;
  const auto [y_channels, group_channels, w_height, w_width] = w.dimensions;
  const std::int64_t y_height = y.dimensions[2], y_width = y.dimensions[3];
  const std::int64_t group_outputs = y_channels / (x_channels / group_channels);
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t y_channel = 0; y_channel < y_channels; ++y_channel) {
      for (std::int64_t channel = 0; channel < group_channels; ++channel) {
        const std::int64_t x_channel = y_channel / group_outputs * group_channels + channel;
        for (std::int64_t w_row = 0; w_row < w_height; ++w_row) {
          for (std::int64_t w_column = 0; w_column < w_width; ++w_column) {
            const std::int64_t w_at =
                ((y_channel * group_channels + channel) * w_height + w_row) * w_width + w_column;
            // x column of y column 0, and the y columns whose x column exists
            const std::int64_t offset = w_column * dilation[1] - padding[1];
            const std::int64_t first = offset < 0 ? (-offset + stride[1] - 1) / stride[1] : 0;
            const std::int64_t end =
                offset >= x_width ? 0 : std::min(y_width, (x_width - 1 - offset) / stride[1] + 1);
            if (first >= end) continue;
            for (std::int64_t y_row = 0; y_row < y_height; ++y_row) {
              const std::int64_t x_row = y_row * stride[0] - padding[0] + w_row * dilation[0];
              if (x_row < 0 || x_row >= x_height) continue;
              const std::int64_t x_at = ((sample * x_channels + x_channel) * x_height + x_row) * x_width +
                                        offset + first * stride[1];
              const std::int64_t y_at =
                  ((sample * y_channels + y_channel) * y_height + y_row) * y_width + first;
              visit(w_at, x_at, y_at, end - first, stride[1]);
            }
          }
        }
      }
    }
  }
}

void run_convolution(const Descriptor& operation, const ConvolutionNames& names, Values& values) {
  const TensorLayout x(*operation.linked(names.x)), w(*operation.linked(names.w)),
      y(*operation.linked(names.y));
  const TensorLayout& output = names.direction == Direction::forward ? y
                               : names.direction == Direction::data  ? x
                                                                     : w;
  std::vector<double> sums(static_cast<std::size_t>(output.elements()), 0.0);
  const auto values_of = [&](const TensorLayout& tensor) {
    return &tensor == &output ? sums.data() : values.at(tensor.id).data();
  };
  double *const xs = values_of(x), *const ws = values_of(w), *const ys = values_of(y);
  each_run(
      x, w, y, *operation.linked(names.parameters),
      [&](std::int64_t w_at, std::int64_t x_at, std::int64_t y_at, std::int64_t count, std::int64_t step) {
        double *const x_run = xs + x_at, *const y_run = ys + y_at;
        switch (names.direction) {
          case Direction::forward:
            for (std::int64_t i = 0; i < count; ++i) y_run[i] += x_run[i * step] * ws[w_at];
            break;
          case Direction::data:
            for (std::int64_t i = 0; i < count; ++i) x_run[i * step] += y_run[i] * ws[w_at];
            break;
          case Direction::filter:
            for (std::int64_t i = 0; i < count; ++i) ws[w_at] += y_run[i] * x_run[i * step];
            break;
        }
      });
  const double alpha = operation.number(names.alpha, 1), beta = operation.number(names.beta, 0);
  if (alpha != 1 || beta != 0) {
    const auto before = values.find(output.id);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * before->second[i];
    }
  }
  output.round(sums);
  values[output.id] = std::move(sums);
}

// Pointwise
// ------------------------------------------------------------------------------------------------------

cudnnPointwiseMode_t mode_of(const Descriptor& operation) {
  return operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      ->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
}

bool takes_two(cudnnPointwiseMode_t mode) {
  return mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_SUB || mode == CUDNN_POINTWISE_MUL;
}

double pointwise(cudnnPointwiseMode_t mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_RELU_FWD:
      return x > 0 || std::isnan(x) ? x : 0;
    default:
      return x;
  }
}

std::string problem_of_pointwise(const Descriptor& operation) {
  const Sizes x = dimensions_of(operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
              b = dimensions_of(operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
              y = dimensions_of(operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  if (!operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) || x.size() != 4 || y.size() != 4) {
    return "a pointwise operation needs x and y of four dimensions and a pointwise descriptor";
  }
  if (takes_two(mode_of(operation)) != (b.size() == 4))
    return "a pointwise operation has b and its mode not, or the reverse";
  for (std::size_t i = 0; i < 4; ++i) {
    if ((x[i] != y[i] && x[i] != 1) || (!b.empty() && b[i] != y[i] && b[i] != 1)) {
      return "an operand of a pointwise operation does not broadcast to y";
    }
  }
  return "";
}

void run_pointwise(const Descriptor& operation, Values& values) {
  const TensorLayout x(*operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
      y(*operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  const cudnnPointwiseMode_t mode = mode_of(operation);
  const TensorLayout b =
      takes_two(mode) ? TensorLayout(*operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) : x;
  const std::vector<double>&x_values = values.at(x.id), &b_values = values.at(b.id);
  std::vector<double> made;
  made.reserve(static_cast<std::size_t>(y.elements()));
  std::array<std::int64_t, 4> at{};
  const auto element = [&](const TensorLayout& tensor) {  // dimensions of one element stand for all
    std::int64_t index = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      index = index * tensor.dimensions[i] + (tensor.dimensions[i] == 1 ? 0 : at[i]);
    }
    return static_cast<std::size_t>(index);
  };
  for (at[0] = 0; at[0] < y.dimensions[0]; ++at[0]) {
    for (at[1] = 0; at[1] < y.dimensions[1]; ++at[1]) {
      for (at[2] = 0; at[2] < y.dimensions[2]; ++at[2]) {
        for (at[3] = 0; at[3] < y.dimensions[3]; ++at[3]) {
          made.push_back(pointwise(mode, x_values[element(x)], b_values[element(b)]));
        }
      }
    }
  }
  y.round(made);
  values[y.id] = std::move(made);
}

}  // namespace

// Tensors
// --------------------------------------------------------------------------------------------------------

TensorLayout::TensorLayout(const Descriptor& tensor)
    : id(tensor.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
      type(*type_of(tensor)),
      alignment(tensor.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
      is_virtual(tensor.get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0) {
  const Sizes sizes = tensor.sizes(CUDNN_ATTR_TENSOR_DIMENSIONS),
              steps = tensor.sizes(CUDNN_ATTR_TENSOR_STRIDES);
  std::copy(sizes.begin(), sizes.end(), dimensions.begin());
  std::copy(steps.begin(), steps.end(), strides.begin());
}

std::int64_t TensorLayout::elements() const {
  return dimensions[0] * dimensions[1] * dimensions[2] * dimensions[3];
}

std::size_t TensorLayout::bytes() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < 4; ++i) last += (dimensions[i] - 1) * strides[i];
  return static_cast<std::size_t>(last + 1) * size_of(type);
}

namespace {

/// Calls visit(place in memory) for the elements in the order of the dimensions.
template <class Visit>
void each_place(const TensorLayout& tensor, Visit visit) {
  const auto& [d0, d1, d2, d3] = tensor.dimensions;
  const auto& [s0, s1, s2, s3] = tensor.strides;
  for (std::int64_t i = 0; i < d0; ++i) {
    for (std::int64_t j = 0; j < d1; ++j) {
      for (std::int64_t k = 0; k < d2; ++k) {
        for (std::int64_t l = 0; l < d3; ++l) visit(i * s0 + j * s1 + k * s2 + l * s3);
      }
    }
  }
}

}  // namespace

std::vector<double> TensorLayout::load(const void* memory) const {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(elements()));
  with_type(type, [&]<class T>(T) {
    each_place(*this, [&](std::int64_t place) {
      values.push_back(to_double(static_cast<const T*>(memory)[place]));
    });
  });
  return values;
}

void TensorLayout::store(void* memory, const std::vector<double>& values) const {
  with_type(type, [&]<class T>(T) {
    const double* next = values.data();
    each_place(*this, [&](std::int64_t place) { static_cast<T*>(memory)[place] = from_double<T>(*next++); });
  });
}

void TensorLayout::round(std::vector<double>& values) const {
  with_type(type, [&]<class T>(T) {
    for (double& value : values) value = to_double(from_double<T>(value));
  });
}

// Operations
// -----------------------------------------------------------------------------------------------------

std::string problem_of_operation(const Descriptor& operation) {
  if (const auto names = convolution_names(operation)) return problem_of_convolution(operation, *names);
  if (operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return problem_of_pointwise(operation);
  return "";
}

std::vector<const Descriptor*> inputs_of(const Descriptor& operation) {
  std::vector<const Descriptor*> inputs;
  if (const auto names = convolution_names(operation)) {
    for (const int name : {names->x, names->w, names->y}) {
      if (name != names->output()) inputs.push_back(operation.linked(name));
    }
  } else {
    inputs.push_back(operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    if (const Descriptor* const b = operation.linked(CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
      inputs.push_back(b);
  }
  return inputs;
}

const Descriptor* output_of(const Descriptor& operation) {
  const auto names = convolution_names(operation);
  return operation.linked(names ? names->output() : static_cast<int>(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
}

bool adds_to_output(const Descriptor& operation) {
  const auto names = convolution_names(operation);
  return names && operation.number(names->beta, 0) != 0;
}

/// As on recent cards: no float64 in convolutions, and bfloat16 only from Ampere on.
bool supported(const Descriptor& operation) {
  const auto names = convolution_names(operation);
  if (!names && operation.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return false;
  std::vector<const Descriptor*> tensors = inputs_of(operation);
  tensors.push_back(output_of(operation));
  for (const Descriptor* const tensor : tensors) {
    const auto type = type_of(*tensor);
    if (!type || *type == Type::float64) return false;
    if (*type == Type::bfloat16 && settings().architecture < kAmpere) return false;
  }
  if (names) {
    const Descriptor& parameters = *operation.linked(names->parameters);
    return parameters.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
           parameters.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
               CUDNN_CROSS_CORRELATION &&
           type_of(*tensors[0]) == type_of(*tensors[1]);
  }
  const cudnnPointwiseMode_t mode = mode_of(operation);
  return takes_two(mode) || mode == CUDNN_POINTWISE_RELU_FWD || mode == CUDNN_POINTWISE_IDENTITY;
}

void run_operation(const Descriptor& operation, Values& values) {
  if (const auto names = convolution_names(operation)) return run_convolution(operation, *names, values);
  run_pointwise(operation, values);
}

}  // namespace emulator
