// A picture in memory: rectangles, lines, text, and the PNG file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::examples {

/// 0xRRGGBB.
using Color = uint32_t;

/// Which end of a text its x is.
enum class Align : uint8_t { left, center, right };

/// Pixels counted from the top left corner. What is drawn outside is cut off.
class Canvas {
 public:
  static constexpr int text_height = 18;  ///< from the top of a tall letter to the bottom of a hanging one

  Canvas(int width, int height, Color background);

  int width() const { return width_; }
  int height() const { return height_; }
  /// The pixel at column x and row y, which must lie inside.
  Color at(int x, int y) const;

  void fill(int x, int y, int width, int height, Color color);
  /// A line with round ends and smooth edges.
  void line(double x0, double y0, double x1, double y1, double thickness, Color color);
  /// Writes digits, letters (as lower case) and . , : - + = [ ] ( ) / % with the top of the text at y; any
  /// other character leaves a space.
  void text(int x, int y, std::string_view text, Color color, Align align = Align::left);
  static int text_width(std::string_view text);

  /// Throws Error if the file cannot be written.
  void write_png(const std::string& path) const;

 private:
  uint8_t* pixel(int x, int y);

  int width_, height_;
  std::vector<uint8_t> rgb_;
};

}  // namespace mezzo::examples
