// Tensors: arrays of one dtype, seen through a shape and strides. Run it: sh examples/run.sh 01_tensor
#include <iostream>

#include "mezzo.h"

using namespace mezzo;

int main() {
  // A tensor has a shape, a dtype (float32 unless said otherwise) and a device.
  const Tensor a = tensor({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  std::cout << "a =\n"
            << a << "\n  shape " << to_string(a.shape()) << ", dtype " << name_of(a.dtype()) << "\n\n";

  // A Tensor is a small handle: a copy of it shares the elements. clone() copies them.
  Tensor same = a, copy = a.clone();
  same.add_(10);
  std::cout << "after same.add_(10), a =\n" << a << "\nbut the clone is\n" << copy << "\n\n";
  same.sub_(10);

  // Views show the same memory under another shape: transposing moves no element, it swaps strides.
  const Tensor t = a.t();
  std::cout << "a.t() =\n"
            << t << "\n  strides " << to_string(t.strides()) << " instead of " << to_string(a.strides())
            << "\n\n";

  // Shapes broadcast: a size of 1 stretches, by a stride of 0. Here a row is added to each row of a.
  const Tensor row = arange(3) * 100;
  std::cout << "a + row =\n" << a + row << "\n\n";

  // Types promote, as in PyTorch: a number gives way to a tensor, integers to floating values, 16 bits to 32.
  const Tensor halves = a.to(float16), integers = arange(3);
  std::cout << "float16 + 1.5     is " << name_of((halves + 1.5).dtype()) << "\n"
            << "float16 + float32 is " << name_of((halves + a).dtype()) << "\n"
            << "int64 / int64     is " << name_of((integers / 2).dtype()) << "\n\n";

  // 16-bit values are for storage; arithmetic happens in float32 and rounds once. A running sum in float16
  // would stop at 2048, where the next number is 2050.
  const Tensor many = ones({10000}, {.dtype = float16});
  std::cout << "sum of 10,000 ones in float16: " << many.sum().item<float>() << "\n\n";

  // Comparisons give bool, reductions take dims. A board of fields, as the checkerboard example makes it:
  const Tensor stripes = arange(8).mul(0.25).fmod(1.0).ge(0.5);
  const Tensor board = stripes.reshape({1, 8}).logical_xor(stripes.reshape({8, 1}));
  std::cout << "board =\n" << board.to(int64) << "\n  ones in each row: " << board.sum(1) << "\n\n";

  // A wrong call throws, says what does not fit, and changes nothing.
  try {
    matmul(a, a);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}
