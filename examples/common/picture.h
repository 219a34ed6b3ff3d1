// The pictures that a training example leaves behind: what the network made of its task and how it got there,
// and where its gradients lay in float16.
#pragma once

#include <string>
#include <vector>

#include "amp/gradient_report.h"
#include "examples/common/canvas.h"

namespace mezzo::examples {

/// An array to be shown in colours: `values` row by row, width * height of them.
struct Panel {
  std::string title;
  int width = 0, height = 0;
  std::vector<float> values;
};

/// The losses of a training run, in its own colour.
struct Curve {
  std::string name;
  std::vector<double> losses;
};

/// The colour map viridis from dark blue, at 0, to yellow, at 1; 256 colours.
Color viridis(double value);

/// Writes a PNG: the panels side by side, each through viridis over its own range, which stands beneath;
/// under them the loss of each step, with a logarithmic axis if it spans more than a decade. What is not
/// finite is red in a panel and a gap in the curve. Throws Error if the file cannot be written or a panel's
/// sizes disagree.
void write_training_picture(const std::string& path, const std::vector<Panel>& panels,
                            const std::vector<double>& losses);

/// The same with a curve for each of several runs, named above.
void write_comparison_picture(const std::string& path, const std::vector<Panel>& panels,
                              const std::vector<Curve>& curves);

/// Writes a PNG: the histograms of all the report's gradients at scale 1 and, beneath, at its scale, each
/// over the zones of float16 and the share of gradients that a zone holds. A bin's height is its share of the
/// largest. Throws Error if the file cannot be written.
void write_gradient_picture(const std::string& path, const amp::GradientReport& report);

}  // namespace mezzo::examples
