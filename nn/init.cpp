#include "nn/init.h"

#include <cmath>

#include "autograd/grad_mode.h"

namespace mezzo::nn::init {

namespace {

struct Fans {
  double in, out;
};

Fans fans_of(const Tensor& x) {
  if (x.dim() < 2) fail("init", "a fan needs at least 2 dimensions", {{"tensor", x}});
  double area = 1;
  for (int d = 2; d < x.dim(); ++d) area *= static_cast<double>(x.size(d));
  return {static_cast<double>(x.size(1)) * area, static_cast<double>(x.size(0)) * area};
}

}  // namespace

void uniform_(Tensor x, double low, double high) {
  const NoGradGuard guard;
  x.uniform_(low, high);
}

void normal_(Tensor x, double mean, double std) {
  const NoGradGuard guard;
  x.normal_(mean, std);
}

void constant_(Tensor x, double value) {
  const NoGradGuard guard;
  x.fill_(value);
}

void kaiming_uniform_(Tensor x, double a) {
  const double bound = std::sqrt(6 / ((1 + a * a) * fans_of(x).in));
  uniform_(x, -bound, bound);
}

void kaiming_normal_(Tensor x, double a) { normal_(x, 0, std::sqrt(2 / ((1 + a * a) * fans_of(x).in))); }

void xavier_uniform_(Tensor x, double gain) {
  const double bound = gain * std::sqrt(6 / (fans_of(x).in + fans_of(x).out));
  uniform_(x, -bound, bound);
}

void xavier_normal_(Tensor x, double gain) {
  normal_(x, 0, gain * std::sqrt(2 / (fans_of(x).in + fans_of(x).out)));
}

void default_(Tensor weight, Tensor bias) {
  kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(fans_of(weight).in);
  if (bias.defined()) uniform_(bias, -bound, bound);
}

}  // namespace mezzo::nn::init
