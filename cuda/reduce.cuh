// Reductions: kernels that fold lines of elements, each into one, by the ops of reduce.cu. The input is read
// once. Where there are few lines, several blocks share one and a second kernel folds what they made of it.
#pragma once

#include "cuda/pack.cuh"
#include "cuda/team.cuh"

namespace mezzo::cuda {

/// What the kernels need to know. Elements of both walks are packs of elements if the input is read in packs.
struct Folding {
  Walk<2> lines;    ///< a line's first element in the input, and its result
  Walk<1> reduced;  ///< the elements of a line
  const void* in;
  void* out;
  DType in_dtype, out_dtype;
  bool mean;
  int64_t count;       ///< elements of a line
  int64_t tail;        ///< of them at its end that make no pack; only where a line is one stretch of memory
  int64_t outer_step;  ///< between the results of a pack of lines
  Team team;
  int64_t parts, part_size;  ///< of a line, a block each
  int64_t groups;            ///< of team.lines lines
};

inline constexpr unsigned kFoldThreads = 256;

/// The lines of a pack, folded at once.
template <class Acc, int lines>
struct Accs {
  Acc line[lines];
};

/// acc = the elements of part `part` of a line that member() of a team takes. A pack along the line goes into
/// one result, a pack of lines into one each.
template <class Op, class E, int size, bool of_lines>
__device__ auto fold_part(const Folding& f, int64_t start, int64_t part) {
  constexpr int lines = of_lines ? size : 1;
  Accs<typename Op::Acc, lines> accs;
  for (auto& acc : accs.line) acc = Op::identity();
  const auto take = [&](int64_t place, int64_t i) {
    typename Op::Value x[size];
    load_pack<E>(x, f.in, f.in_dtype, place);
    for (int j = 0; j < size; ++j) {
      auto& acc = accs.line[of_lines ? j : 0];
      acc = Op::merge(acc, Op::lift(x[j], of_lines ? i : i * size + j));
    }
  };
  const int64_t begin = part * f.part_size, end = std::min(begin + f.part_size, f.reduced.count);
  if (f.reduced.dims == 1) {
    const int64_t step = f.reduced.strides[0][0];
#pragma unroll 4
    for (int64_t i = begin + f.team.member(); i < end; i += f.team.members) take(start + i * step, i);
  } else {
#pragma unroll 1  // several divisions each: more at once would spill registers
    for (int64_t i = begin + f.team.member(); i < end; i += f.team.members) {
      int64_t place[1];
      f.reduced.places(i, place);
      take(start + place[0], i);
    }
  }
  if (!of_lines && part == f.parts - 1) {
    const int64_t whole = f.reduced.count * size;
    for (int64_t i = whole + f.team.member(); i < whole + f.tail; i += f.team.members) {
      typename Op::Value x[1];
      load_pack<E>(x, f.in, f.in_dtype, start + i);
      accs.line[0] = Op::merge(accs.line[0], Op::lift(x[0], i));
    }
  }
  return accs;
}

/// Results, or with several parts their values, as [parts, lines].
template <class Op, class E, int size, bool of_lines>
__global__ void __launch_bounds__(kFoldThreads) fold(const Folding f, typename Op::Acc* partial) {
  constexpr int lines = of_lines ? size : 1;
  using Values = Accs<typename Op::Acc, lines>;
  for (int64_t task = blockIdx.x; task < f.groups * f.parts; task += gridDim.x) {
    const int64_t part = task / f.groups, line = task % f.groups * f.team.lines + f.team.line();
    const bool exists = line < f.lines.count;
    int64_t place[2] = {0, 0};
    if (exists) f.lines.places(line, place);
    Values values = exists ? fold_part<Op, E, size, of_lines>(f, place[0], part) : Values{};
    values = f.team.merge<kFoldThreads>(values, [](const Values& a, const Values& b) {
      Values merged;
      for (int j = 0; j < lines; ++j) merged.line[j] = Op::merge(a.line[j], b.line[j]);
      return merged;
    });
    if (!exists || f.team.member() != 0) continue;
    for (int j = 0; j < lines; ++j) {
      if (partial != nullptr)
        partial[(part * f.lines.count + line) * lines + j] = values.line[j];
      else
        Op::finish(f, place[1] + j * f.outer_step, values.line[j]);
    }
  }
}

/// A warp folds what the parts of one line made of it. `pack`: lines that are one element of f.lines.
template <class Op>
__global__ void fold_parts(const Folding f, int pack, const typename Op::Acc* partial) {
  const int64_t count = f.lines.count * pack, lane = threadIdx.x % kWarp;
  for (int64_t line = first_item() / kWarp; line < count; line += grid_stride() / kWarp) {
    typename Op::Acc acc = Op::identity();
    for (int64_t part = lane; part < f.parts; part += kWarp)
      acc = Op::merge(acc, partial[part * count + line]);
    acc = warp_reduce(acc, [](const auto& a, const auto& b) { return Op::merge(a, b); });
    if (lane != 0) continue;
    int64_t place[2];
    f.lines.places(line / pack, place);
    Op::finish(f, place[1] + line % pack * f.outer_step, acc);
  }
}

}  // namespace mezzo::cuda
