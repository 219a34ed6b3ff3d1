// Module: contents and their names, what is shared, mode, conversions, state dicts, printing, errors.
#include <doctest/doctest.h>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "nn/nn.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/error_text.h"
#include "tests/golden.h"
#include "tests/support.h"

using namespace mezzo;

namespace {

struct Net : nn::Module {
  nn::Sequential body = add("body", nn::Sequential(nn::Conv2d(2, 4, 1), nn::BatchNorm2d(4), nn::ReLU()));
  nn::Conv2d head = add("head", nn::Conv2d(4, 1, 1, {.bias = false}));

  Net() { to(test_device()); }
  Tensor forward(const Tensor& x) override { return head(body(x)); }
};

Tensor input() { return rand({2, 2, 3, 5}, {.device = test_device()}); }

std::vector<std::string> names(const nn::NamedTensors& tensors) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors) all.push_back(name);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("module: contents come in order of registration, with paths for names") {
  const Net net;
  CHECK(names(net.named_parameters()) ==
        Names{"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight"});
  CHECK(names(net.named_buffers()) ==
        Names{"body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked"});
  CHECK(net.parameters().size() == 5);
  for (const Tensor& parameter : net.parameters()) CHECK(parameter.requires_grad());
  for (const auto& [name, buffer] : net.named_buffers()) CHECK_FALSE(buffer.requires_grad());
  const auto children = net.children();
  REQUIRE(children.size() == 2);
  CHECK(children[0].first == "body");
  CHECK(children[1].first == "head");
  CHECK(dynamic_cast<nn::Conv2d*>(children[1].second.get()) != nullptr);
}

TEST_CASE("module: a copy shares parameters, buffers, children and mode") {
  Net net, copy = net;
  copy.eval();
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(net.body.is_training());
  {
    const NoGradGuard guard;
    copy.head.weight.fill_(0);
  }
  CHECK(net.head.weight.detach().abs().amax().item<float>() == 0);
  CHECK(net.parameters()[0].impl() == copy.parameters()[0].impl());
  CHECK(net.body.children()[0].second->parameters()[0].impl() == net.parameters()[0].impl());
}

TEST_CASE("module: a call runs forward") {
  Net net;
  const Tensor x = input();
  const Tensor y = net(x), z = conv2d(net.body(x), net.head.weight);
  CHECK(close(y.detach(), z.detach(), 0));
  CHECK(error_text([&] {
          nn::MSELoss().forward(x);
        }).find("MSELoss: has no forward for one tensor; input ") == 0);
}

TEST_CASE("module: apply visits children before their parent") {
  Net net;
  std::vector<const nn::Module*> visited;
  std::string order;
  net.apply([&](nn::Module& module) {
    const std::string printed = module.to_string();
    order += printed.substr(0, printed.find('(')) + ' ';
  });
  CHECK(order == "Conv2d BatchNorm2d ReLU Sequential Conv2d Net ");
}

TEST_CASE("module: train and eval reach every module below") {
  Net net;
  CHECK(net.is_training());
  const auto all = [&](bool training) {
    net.apply([training](nn::Module& module) { CHECK(module.is_training() == training); });
  };
  net.eval();
  all(false);
  const StateDict before = net.state_dict();
  net(input());
  CHECK(before.at("body.1.num_batches_tracked").item<int64_t>() == 0);
  net.train();
  all(true);
  net(input());
  CHECK(before.at("body.1.num_batches_tracked").item<int64_t>() == 1);
  net.body.train(false);
  CHECK(net.is_training());
}

TEST_CASE("module: requires_grad_ freezes and thaws, zero_grad forgets") {
  Net net;
  net.body.requires_grad_(false);
  net(input()).sum().backward();
  CHECK(net.head.weight.grad().defined());
  CHECK_FALSE(net.parameters()[0].grad().defined());
  net.zero_grad();
  CHECK_FALSE(net.head.weight.grad().defined());
  net.requires_grad_();
  net(input()).sum().backward();
  CHECK(net.parameters()[0].grad().defined());
}

TEST_CASE("module: to(dtype) changes parameters in place, with their gradients, and floating buffers") {
  Net net, copy = net;
  const nn::Conv2d head = net.head;
  optim::Adam optimizer(net.parameters(), {.lr = .1});
  net(input()).sum().backward();
  const Tensor weight = net.head.weight.detach().clone(), gradient = net.head.weight.grad().clone();
  net.to(float64);
  CHECK(copy.head.weight.dtype() == float64);
  CHECK(head.weight.is_leaf());
  CHECK(head.weight.requires_grad());
  CHECK(close(head.weight.detach(), weight.to(float64), 0));
  CHECK(close(head.weight.grad(), gradient.to(float64), 0));
  for (const auto& [name, buffer] : net.named_buffers()) {
    CHECK(buffer.dtype() == (name == "body.1.num_batches_tracked" ? int64 : float64));
  }
  optimizer.step();
  CHECK(close(copy.head.weight.detach(),
              weight.sub(gradient.div(gradient.abs().add(1e-8)).mul(.1)).to(float64), 1e-6));
  CHECK(net(input().to(float64)).dtype() == float64);

  net.half();
  CHECK(copy.head.weight.dtype() == float16);
  net.bfloat16();
  optimizer.zero_grad();
  net(input().to(bfloat16)).sum().backward();
  optimizer.step();
  CHECK(copy.head.weight.dtype() == bfloat16);
  CHECK(copy.head.weight.grad().dtype() == bfloat16);
  CHECK(error_text([&] { net.to(int64); }).find("to: modules compute in floating dtypes, not int64") == 0);
}

TEST_CASE("module: to(channels_last) keeps values, and what shares them") {
  struct Wide : nn::Module {
    nn::Conv2d conv = add("conv", nn::Conv2d(3, 4, 3));
    nn::Linear linear = add("linear", nn::Linear(2, 2));
  } wide;
  wide.to(test_device());
  optim::SGD optimizer(wide.parameters(), {.lr = .1, .momentum = .5});
  const Tensor x = rand({2, 3, 5, 6}, {.device = test_device()});
  wide.conv(x).square().sum().backward();
  optimizer.step();  // makes a momentum buffer in the layout of now
  const Tensor before = wide.conv.weight.detach().clone(), gradient = wide.conv.weight.grad().clone();
  const Tensor y = wide.conv(x).detach();
  wide.to(channels_last);
  CHECK(wide.conv.weight.is_contiguous(channels_last));
  CHECK_FALSE(wide.conv.weight.is_contiguous());
  CHECK(wide.conv.weight.grad().is_contiguous(channels_last));
  CHECK(close(wide.conv.weight.detach(), before, 0));
  CHECK(close(wide.conv.weight.grad(), gradient, 0));
  CHECK(close(wide.conv(x).detach(), y, 1e-5));
  optimizer.step();
  CHECK(wide.conv.weight.is_contiguous(channels_last));
  CHECK(close(wide.conv.weight.detach(), before - gradient * (.1 * 1.5), 1e-5));
}

TEST_CASE("module: to(device) moves parameters, gradients and buffers") {
  Net net;
  const Device other = test_device() == Device("cpu") ? "reference" : "cpu";
  net(input()).sum().backward();
  net.to(other);
  for (const Tensor& parameter : net.parameters()) {
    CHECK(parameter.device() == other);
    CHECK(parameter.grad().device() == other);
  }
  for (const auto& [name, buffer] : net.named_buffers()) CHECK(buffer.device() == other);
  CHECK(net(input().to(other)).device() == other);
}

TEST_CASE("module: state_dict shares memory") {
  Net net;
  const StateDict state = net.state_dict();
  CHECK(state.size() == 8);
  Tensor weight = state.at("head.weight");
  CHECK_FALSE(weight.requires_grad());
  weight.fill_(7);
  CHECK(net.head.weight.detach().amin().item<float>() == 7);
}

TEST_CASE("module: load_state_dict copies, converts and keeps what is there") {
  Net source, net;
  source(input());
  net.to(float64);
  const Tensor weight = net.head.weight;
  net.load_state_dict(source.state_dict());
  CHECK(weight.dtype() == float64);
  CHECK(weight.requires_grad());
  CHECK(close(weight.detach(), source.head.weight.detach().to(float64), 0));
  CHECK(net.state_dict().at("body.1.num_batches_tracked").item<int64_t>() == 1);
  source.head.weight.detach().fill_(0);
  CHECK(weight.detach().abs().amax().item<double>() > 0);
  net.load_state_dict(net.state_dict());
  CHECK(weight.detach().abs().amax().item<double>() > 0);
}

TEST_CASE("module: load_state_dict lists all that does not fit and changes nothing") {
  Net net;
  const Tensor before = net.head.weight.detach().clone();
  StateDict state;
  for (const auto& [name, value] : net.state_dict()) {
    if (name == "body.0.bias") continue;
    state.insert(name, name == "body.1.weight" ? zeros({5}) : zeros(value.shape()));
  }
  state.insert("tail.weight", zeros({1}));
  state.insert("tail.bias", zeros({1}));
  CHECK(
      error_text([&] { net.load_state_dict(state); }) ==
      "load_state_dict: missing body.0.bias, wrong shape body.1.weight [5] for [4], unexpected tail.weight, "
      "unexpected tail.bias");
  CHECK(close(net.head.weight.detach(), before, 0));
}

namespace {

struct Classifier : nn::Module {
  nn::Sequential body = add(
      "body",
      nn::Sequential(
          nn::Conv2d(2, 8, 1), nn::BatchNorm2d(8), nn::ReLU(),
          nn::Conv2d(8, 4, {3, 5},
                     {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2, .bias = false}),
          nn::BatchNorm2d(4, {.eps = 1e-3, .momentum = {}, .affine = false, .track_running_stats = false})));
  nn::Linear head = add("head", nn::Linear(4, 1));
  nn::MSELoss loss = add("loss", nn::MSELoss());
  nn::Sequential none = add("none", nn::Sequential());
  std::string extra() const override { return "classes=1"; }
};

}  // namespace

TEST_CASE("module: prints as PyTorch prints") {
  // PyTorch 2.15's print of the same modules.
  CHECK(Classifier().to_string() ==
        "Classifier(\n"
        "  classes=1\n"
        "  (body): Sequential(\n"
        "    (0): Conv2d(2, 8, kernel_size=(1, 1), stride=(1, 1))\n"
        "    (1): BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n"
        "    (2): ReLU()\n"
        "    (3): Conv2d(8, 4, kernel_size=(3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, "
        "bias=False)\n"
        "    (4): BatchNorm2d(4, eps=0.001, momentum=None, affine=False, bias=False, "
        "track_running_stats=False)\n"
        "  )\n"
        "  (head): Linear(in_features=4, out_features=1, bias=True)\n"
        "  (loss): MSELoss()\n"
        "  (none): Sequential()\n"
        ")");
  CHECK(nn::Linear(2, 3, {.bias = false}).to_string() == "Linear(in_features=2, out_features=3, bias=False)");
  CHECK(nn::BatchNorm2d(3, {.momentum = 0.0}).to_string() ==
        "BatchNorm2d(3, eps=1e-05, momentum=0.0, affine=True, bias=True, track_running_stats=True)");
  std::ostringstream out;
  out << nn::Conv2d(2, 2, 3, {.stride = 2, .padding = 1});
  CHECK(out.str() == "Conv2d(2, 2, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))");
}

TEST_CASE("module: errors name the path of the module") {
  Net net;
  const Tensor wrong = rand({2, 3, 3, 5}, {.device = test_device()});
  CHECK(error_text([&] { net(wrong); }) == text("conv2d: input has 3 channels but weight expects 2; input ",
                                                describe(wrong), ", weight ", describe(net.parameters()[0]),
                                                ", bias ", describe(net.parameters()[1]), "; in body.0"));
  CHECK(module_path() == "");
  CHECK_FALSE(error_text([&] { net.head(wrong); }).ends_with("body.0"));
}

namespace {

/// Two inputs, and a module that is called in two places.
struct Siamese : nn::Module {
  nn::Linear shared = add("shared", nn::Linear(3, 2));
  Siamese() { to(test_device()); }
  using Module::forward;
  Tensor forward(const Tensor& a, const Tensor& b) { return (shared(a) - shared(b)).square().sum(); }
};

/// One weight under two names.
struct Tied : nn::Module {
  Tensor up, down;
  Tied() {
    up = add_parameter("up", rand({2, 2}, {.device = test_device()}));
    down = add_parameter("down", up);
  }
  Tensor forward(const Tensor& x) override { return x.matmul(up).matmul(down.t()); }
};

}  // namespace

TEST_CASE("module: a forward of one's own calls its children") {
  Siamese net;
  const Tensor a = rand({4, 3}, {.device = test_device()}), b = rand({4, 3}, {.device = test_device()});
  net.forward(a, b).backward();
  // d/dW sum |W (a - b)|^2 = 2 W (a - b)^T (a - b)
  const Tensor d = a - b;
  CHECK(close(net.shared.weight.grad(), net.shared.weight.detach().matmul(d.t().matmul(d)).mul(2), 1e-5));
  CHECK(net.shared.bias.grad().abs().amax().item<float>() < 1e-5f);
  CHECK(error_text([&] {
          net.forward(rand({4, 5}, {.device = test_device()}), b);
        }).ends_with("; in shared"));
}

TEST_CASE("module: what is shared is listed once and saved under each name") {
  Tied net;
  CHECK(names(net.named_parameters()) == Names{"up"});
  CHECK(net.parameters().size() == 1);
  CHECK(net.state_dict().size() == 2);
  net.to(float64);
  CHECK(net.down.dtype() == float64);
  CHECK(net.up.impl() == net.down.impl());
  optim::Adam optimizer(net.parameters());
  net(rand({3, 2}, {.dtype = float64, .device = test_device()})).sum().backward();
  optimizer.step();

  struct Twice : nn::Module {
    nn::BatchNorm2d norm{2};
    Twice() {
      add("first", norm);
      add("second", norm);
    }
  } twice;
  CHECK(names(twice.named_parameters()) == Names{"first.weight", "first.bias"});
  CHECK(twice.named_buffers().size() == 3);
  CHECK(twice.state_dict().size() == 10);
}

TEST_CASE("module: names that would make keys ambiguous are refused") {
  struct Open : nn::Module {
    using Module::add, Module::add_buffer, Module::add_parameter;
  } open;
  open.add("a", nn::ReLU());
  CHECK(error_text([&] { open.add("a", nn::ReLU()); }) == "add: there is a \"a\" already");
  CHECK(error_text([&] { open.add("b.c", nn::ReLU()); }) ==
        "add: \"b.c\" is no name: it must not be empty or contain a dot");
  CHECK(error_text([&] { open.add("", nn::ReLU()); }).find("is no name") != std::string::npos);
  open.add_parameter("w", zeros({2}));
  CHECK(error_text([&] { open.add_buffer("w", zeros({2})); }) == "add_buffer: there is a \"w\" already");
  CHECK(error_text([&] { open.add_parameter("a", zeros({2})); }) ==
        "add_parameter: there is a \"a\" already");
  CHECK(open.state_dict().size() == 1);
}

TEST_CASE("module: none is part of itself, nor of what it contains") {
  struct Open : nn::Module {
    using Module::add_child;
  };
  Open outer, inner;
  outer.add_child("inner", std::make_shared<Open>(inner));
  CHECK(error_text([&] { outer.add_child("self", std::make_shared<Open>(outer)); }).find("add: ") == 0);
  CHECK(error_text([&] { inner.add_child("outer", std::make_shared<Open>(outer)); }).find("add: ") == 0);
  CHECK(inner.children().empty());
}

TEST_CASE("Sequential: runs modules in order, grows, and nests") {
  nn::Sequential net;
  const Tensor x = tensor({-1, 2}, {.device = test_device()});
  CHECK(close(net(x), x, 0));
  net.push_back(nn::ReLU());
  CHECK(net(x).to_vector<float>() == std::vector<float>{0, 2});
  struct Shift : nn::Module {
    Tensor forward(const Tensor& y) override { return y - 1; }
  };
  net.push_back(Shift());
  CHECK(net(x).to_vector<float>() == std::vector<float>{-1, 1});
  nn::Sequential outer(net, nn::ReLU());
  CHECK(outer(x).to_vector<float>() == std::vector<float>{0, 1});
  CHECK(outer.children().size() == 2);
  CHECK(outer.to_string() ==
        "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n    (1): Shift()\n  )\n  (1): ReLU()\n)");
}
