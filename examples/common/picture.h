// The picture that a training example leaves behind: what the network made of its task, and how it got there.
#pragma once

#include <string>
#include <vector>

#include "examples/common/canvas.h"

namespace mezzo::examples {

/// An array to be shown in colours: `values` row by row, width * height of them.
struct Panel {
  std::string title;
  int width = 0, height = 0;
  std::vector<float> values;
};

/// The colour map viridis from dark blue, at 0, to yellow, at 1; 256 colours.
Color viridis(double value);

/// Writes a PNG: the panels side by side, each through viridis over its own range, which stands beneath;
/// under them the loss of each step, with a logarithmic axis if it spans more than a decade. What is not
/// finite is red in a panel and a gap in the curve. Throws Error if the file cannot be written or a panel's
/// sizes disagree.
void write_training_picture(const std::string& path, const std::vector<Panel>& panels,
                            const std::vector<double>& losses);

}  // namespace mezzo::examples
