#include "examples/common/canvas.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "tensor/error.h"

namespace mezzo::examples {
namespace {

// The font: glyphs of 5 x 7 pixels and two rows for what hangs below the line, in bands of 16.
constexpr int kGlyphWidth = 5, kGlyphHeight = 9, kPitch = kGlyphWidth + 1, kTextScale = 2, kBand = 16;
static_assert(Canvas::text_height == kGlyphHeight * kTextScale);

constexpr std::string_view kCharacters = "0123456789.,:-+=abcdefghijklmnopqrstuvwxyz[]()/%";
// clang-format off
constexpr std::array<std::string_view, 3 * kGlyphHeight> kFont = {
    " ###    #    ###   ###     #  #####   ##  #####  ###   ###                                      ",
    "#   #  ##   #   # #   #   ##  #      #        # #   # #   #                                     ",
    "#  ##   #       #     #  # #  ####  #        #  #   # #   #                           #         ",
    "# # #   #      #    ##  #  #      # ####    #    ###   ####               #   #####   #   ##### ",
    "##  #   #     #       # #####     # #   #   #   #   #     #                         #####       ",
    "#   #   #    #    #   #    #  #   # #   #   #   #   #    #                            #   ##### ",
    " ###   ###  #####  ###     #   ###   ###    #    ###   ##     #     #     #           #         ",
    "                                                                    #                           ",
    "                                                                   #                            ",
    "      #               #         ##        #       #      #  #      ##                           ",
    "      #               #        #          #                 #       #                           ",
    " ###  ####   ###   ####  ###  ####   #### ####   ##     ##  #  #    #   ## #  ####   ###  ####  ",
    "    # #   # #     #   # #   #  #    #   # #   #   #      #  # #     #   # # # #   # #   # #   # ",
    " #### #   # #     #   # #####  #    #   # #   #   #      #  ##      #   # # # #   # #   # #   # ",
    "#   # #   # #   # #   # #      #    #   # #   #   #      #  # #     #   # # # #   # #   # #   # ",
    " #### ####   ###   ####  ###   #     #### #   #  ###     #  #  #   ###  # # # #   #  ###  ####  ",
    "                                        #             #  #                                #     ",
    "                                     ###               ##                                 #     ",
    "                   #                                          ##   ##      #   #        # ##  # ",
    "                   #                                          #     #     #     #       # ##  # ",
    " #### # ##   #### ####  #   # #   # #   # #   # #   # #####   #     #     #     #      #     #  ",
    "#   # ##    #      #    #   # #   # # # #  # #  #   #    #    #     #     #     #     #     #   ",
    "#   # #      ###   #    #   # #   # # # #   #   #   #   #     #     #     #     #    #     #    ",
    "#   # #         #  #    #   #  # #  # # #  # #  #   #  #      #     #     #     #   #     #  ## ",
    " #### #     ####    ##   ####   #    # #  #   #  #### #####   ##   ##      #   #    #     #  ## ",
    "    #                                               #                                           ",
    "    #                                            ###                                            "};
// clang-format on

uint8_t channel(Color color, int i) { return static_cast<uint8_t>(color >> (16 - 8 * i)); }

}  // namespace

Canvas::Canvas(int width, int height, Color background)
    : width_(width),
      height_(height),
      rgb_(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height)) {
  fill(0, 0, width, height, background);
}

uint8_t* Canvas::pixel(int x, int y) {
  return rgb_.data() + 3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x));
}

Color Canvas::at(int x, int y) const {
  const uint8_t* p = const_cast<Canvas*>(this)->pixel(x, y);
  return Color{p[0]} << 16 | Color{p[1]} << 8 | Color{p[2]};
}

void Canvas::fill(int x, int y, int width, int height, Color color) {
  for (int row = std::max(y, 0); row < std::min(y + height, height_); ++row) {
    for (int column = std::max(x, 0); column < std::min(x + width, width_); ++column) {
      for (int i = 0; i < 3; ++i) pixel(column, row)[i] = channel(color, i);
    }
  }
}

void Canvas::line(double x0, double y0, double x1, double y1, double thickness, Color color) {
  const double dx = x1 - x0, dy = y1 - y0, length_squared = dx * dx + dy * dy, reach = thickness / 2 + 1;
  const auto first = [&](double a, double b) {
    return std::max(0, static_cast<int>(std::min(a, b) - reach));
  };
  const auto last = [&](double a, double b, int size) {
    return std::min(size - 1, static_cast<int>(std::max(a, b) + reach));
  };
  for (int y = first(y0, y1); y <= last(y0, y1, height_); ++y) {
    for (int x = first(x0, x1); x <= last(x0, x1, width_); ++x) {
      const double px = x + 0.5 - x0, py = y + 0.5 - y0;
      const double along =
          length_squared > 0 ? std::clamp((px * dx + py * dy) / length_squared, 0.0, 1.0) : 0;
      const double distance = std::hypot(px - along * dx, py - along * dy);
      const double cover = std::clamp(thickness / 2 + 0.5 - distance, 0.0, 1.0);
      for (int i = 0; i < 3; ++i) {
        uint8_t& value = pixel(x, y)[i];
        value = static_cast<uint8_t>(std::lround(value + cover * (channel(color, i) - value)));
      }
    }
  }
}

int Canvas::text_width(std::string_view text) {
  return text.empty() ? 0 : (kPitch * static_cast<int>(text.size()) - 1) * kTextScale;
}

void Canvas::text(int x, int y, std::string_view text, Color color, Align align) {
  if (align == Align::center) x -= text_width(text) / 2;
  if (align == Align::right) x -= text_width(text);
  for (const char c : text) {
    const size_t glyph = kCharacters.find(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    for (int row = 0; row < kGlyphHeight && glyph != std::string_view::npos; ++row) {
      const std::string_view band = kFont[glyph / kBand * kGlyphHeight + static_cast<size_t>(row)];
      const std::string_view dots = band.substr(glyph % kBand * kPitch, kGlyphWidth);
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (dots[static_cast<size_t>(column)] == ' ') continue;
        fill(x + column * kTextScale, y + row * kTextScale, kTextScale, kTextScale, color);
      }
    }
    x += kPitch * kTextScale;
  }
}

void Canvas::write_png(const std::string& path) const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&image, path.c_str(), 0, rgb_.data(), 0, nullptr)) {
    throw Error(mezzo::text("write_png: cannot write ", path, ": ", image.message));
  }
}

}  // namespace mezzo::examples
